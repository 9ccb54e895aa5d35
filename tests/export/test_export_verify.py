"""The checks that an exported bundle must pass find what is wrong with one."""

import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from fedmed.data.video.frame_masks import picture
from fedmed.errors import ExportError
from fedmed.export.bundle import export_bundle
from fedmed.export.exporter import exporter_of
from fedmed.export.finished_run import read_finished
from fedmed.export.verify import _case, phantom, verify
from fedmed.export.weights import open_store
from fedmed_demo.federation import LAP_INSTRUMENTS_TINY
from fedmed_demo.surgery.recording import DrawnRecording

BUNDLES = Path(__file__).resolve().parents[2] / "bundles"


@pytest.fixture(scope="module")
def source(finished_run, exported_bundle):
    """(exporter of the bundle as installed, the run's tensors)."""
    run = read_finished(finished_run)
    tensors = torch.load(exported_bundle / "models" / "model.pt", weights_only=True)
    return exporter_of(open_store(run).bundle, run.method), tensors


@pytest.fixture
def check(exported_bundle, source, tmp_path):
    """Return a function that damages a copy of the exported bundle and verifies it on a generated scan."""

    def check(damage=None, tensors=None):
        copy = shutil.copytree(exported_bundle, tmp_path / exported_bundle.name)
        if damage:
            damage(copy)
        return verify(copy, copy / "configs" / "inference.yaml", source[0], tensors or source[1], None)

    return check


def test_a_generated_scan_is_about_one_window_and_turned(exported_bundle, tmp_path):
    image = nib.load(_case(tmp_path / "in", None, exported_bundle / "configs" / "inference.yaml")[0])
    assert nib.aff2axcodes(image.affine) == ("L", "P", "I") and -1024 <= np.min(image.dataobj) < -500


def test_a_generated_frame_shows_instruments(tmp_path):
    """Two empty masks would be equal whatever the export did."""
    image = {"spatial_shape": [48, 64], "modality": "endoscopy", "num_channels": 3}
    frame = picture(phantom(tmp_path, image, BUNDLES / "instrument_segmentation/configs/inference.yaml")[0])
    drawings = DrawnRecording(LAP_INSTRUMENTS_TINY["inst_nephro1"], "phantom")
    shown = [drawn.mask for drawn in drawings if np.array_equal(drawn.image, frame)]
    assert shown and np.count_nonzero(shown[0]) > 0.05 * shown[0].size


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: edit(b / "configs/metadata.json", '"version": "', '"version": "v'), "verify_metadata refuses"),
        (lambda b: edit(b / "configs/metadata.json", '"num_channels": 2', '"num_channels": 3'), "verify_net_in_out"),
        (lambda b: edit(b / "configs/inference.yaml", "evaluator:", "runner:"), "check_properties refuses.*evaluator"),
    ],
)
def test_monais_own_checks_are_run(check, damage, message):
    with pytest.raises(ExportError, match=message):
        check(damage)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.slow
def test_other_weights_are_noticed(check, source):
    """A bundle whose weights are not the run's marks other voxels."""
    other = {name: tensor + 0.05 for name, tensor in source[1].items()}
    with pytest.raises(ExportError, match="voxels differ before and after the export"):
        check(tensors=other)


@pytest.mark.slow
def test_a_bundle_that_needs_fedmed_to_infer_is_refused(check):
    def imports(bundle):
        edit(bundle / "covid_ct" / "inferers.py", "import torch\n", "import fedmed.errors\nimport torch\n")

    with pytest.raises(ExportError, match="python -m monai.bundle run of the exported bundle failed.*fedmed"):
        check(imports)


@pytest.mark.usefixtures("no_torchscript")
def test_an_image_that_cannot_be_read_is_said(finished_run, tmp_path):
    (tmp_path / "broken.nii.gz").write_bytes(b"no image")
    with pytest.raises(ExportError, match="cannot infer the image before the export"):
        export_bundle(finished_run, tmp_path / "x_segmentation", verify=tmp_path / "broken.nii.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.nii.gz"]
