"""Parts that a bundle needs before it can infer; that it infers as MONAI does is tested with the examples."""

import json
import logging

import nibabel as nib
import numpy as np
import pytest

from fedmed.bundles.infer import check_ready, infer_image, run_inference
from fedmed.bundles.metadata_classes import segments
from fedmed.errors import BundleError, DataError


@pytest.fixture
def named(tmp_path):
    """Return a function: channel_def -> a bundle that has it; nothing in it can run."""

    def make(channels):
        (tmp_path / "configs").mkdir()
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "model.pt").touch()
        (tmp_path / "configs" / "inference.yaml").write_text("run: [$1 / 0]")
        meta = {"version": "1.0.0", "network_data_format": {"outputs": {"pred": {"channel_def": channels}}}}
        (tmp_path / "configs" / "metadata.json").write_text(json.dumps(meta))
        return tmp_path

    return make


def segment_names(root):
    return [one.name for one in segments(check_ready(root), root)]


@pytest.mark.parametrize(
    ("channels", "names"),
    [
        ({"0": "background", "1": "covid_region"}, ["covid_region"]),
        ({str(k): f"s{k}" if k else "Background" for k in range(12)}, [f"s{k}" for k in range(1, 12)]),
        ({"0": "tool"}, ["tool"]),
    ],
)
def test_segments_are_the_channels_without_background(named, channels, names):
    assert segment_names(named(channels)) == names


def test_a_bundle_without_segments_is_refused(named):
    with pytest.raises(BundleError, match="names no segment in channel_def"):
        segment_names(named({"0": "background"}))


def test_a_classifier_draws_no_segments(named):
    root = named({"0": "normal", "1": "covid"})
    path = root / "configs" / "metadata.json"
    path.write_text(path.read_text().replace('"channel_def"', '"format": "classes", "channel_def"'))
    with pytest.raises(BundleError, match="is a classifier and makes no masks"):
        segment_names(root)


def test_classes_that_the_metadata_describe_wrongly_are_told(named):
    root = named({"0": "background", "1": "x"})
    path = root / "configs" / "metadata.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps(meta | {"classes": [{"name": "x", "colour": "red"}]}))
    with pytest.raises(BundleError, match=r"metadata.json: 'classes': colour: .*write '#rrggbb'.*docs/bundles.md"):
        segment_names(root)
    path.write_text(json.dumps(meta | {"classes": [{"name": "x", "label": "the X"}]}))
    assert segments(check_ready(root), root)[0].title == "the X"


def test_metadata_without_a_version_are_refused(named):
    root = named({"0": "background", "1": "x"})
    for content in ("{}", "[]", '{"version": 1}', "no JSON"):
        (root / "configs" / "metadata.json").write_text(content)
        with pytest.raises(BundleError, match="metadata.json cannot be read"):
            segment_names(root)


def test_a_failure_is_reported_in_one_line_with_its_cause(named, tmp_path):
    (tmp_path / "scan.nii.gz").touch()
    with pytest.raises(BundleError, match="fails at inference: ZeroDivisionError: division by zero"):
        infer_image(named({"0": "background", "1": "x"}), tmp_path / "scan.nii.gz")


def test_an_image_that_does_not_fit_into_memory_is_refused_before_the_bundle_runs(named, tmp_path, claim_shape):
    nib.save(nib.Nifti1Image(np.zeros((4, 4, 4), np.int16), np.eye(4)), tmp_path / "scan.nii.gz")
    claim_shape(tmp_path / "scan.nii.gz", 1900, 1900, 1900)
    with pytest.raises(DataError, match=r"scan\.nii\.gz: does not fit into memory"):
        infer_image(named({"0": "background", "1": "x"}), tmp_path / "scan.nii.gz")


def test_what_the_bundle_logs_is_told_and_not_what_its_libraries_log(named, tmp_path, caplog):
    root = named({"0": "background", "1": "x"})
    log = "$logging.getLogger('{}').{}('{}')"
    steps = [log.format("covid_ct", "warning", "no value near that of air"), log.format("monai.made.now", "error", "m")]
    steps += [log.format("ignite.engine.Evaluator", "error", "n"), "$monai.data.image_writer.logger.error('/tmp/x')"]
    config = root / "configs/inference.yaml"
    config.write_text(json.dumps({"imports": ["$import logging", "$import monai"], "run": steps}))
    run_inference(root, [config], {})
    assert [(record.name, record.message) for record in caplog.records] == [("covid_ct", "no value near that of air")]
    logging.getLogger("monai.made.now").error("afterwards")
    assert "/tmp/x" not in caplog.text and "afterwards" in caplog.text
