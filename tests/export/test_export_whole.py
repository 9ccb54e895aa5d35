"""A finished run becomes a bundle that is complete, says where it comes from, and names nobody."""

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from monai.bundle import ConfigParser, ConfigWorkflow, verify_metadata

from fedmed.bundles.digests import DIGESTS, read_digests
from fedmed.bundles.find import SHIPPED_BUNDLES, bundle_digest
from fedmed.bundles.metadata_classes import segments
from fedmed.errors import ExportError
from fedmed.export import bundle as bundle_module
from fedmed.export.bundle import export_bundle
from fedmed.export.exporter import WITHOUT_FEDMED
from fedmed.export.formats import TOLERANCE, open_network
from fedmed.export.verify import SCHEMA
from fedmed.export.weights_origin import withheld, without_names
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job
from fedmed.recovery.model_store import ModelStore
from fedmed_demo import demo_site

SITES = ("ct_north", "ct_east", "ct_west", "ct_south")
SMALL = {"pixdim": [5.5, 5.5, 12.0], "window_size": [32, 32, 16], "patch_size": [16, 16, 16]}
PARTS = {"LICENSE", "configs", "covid_ct", "digests.json", "docs", "models"}


@pytest.fixture(scope="module")
def real_image(fedmed_home):
    """The first image of a site of the demo."""
    return sorted((demo_site("chest_ct_tiny", "ct_west", fedmed_home) / "images").iterdir())[0]


@pytest.fixture(scope="module")
def verified(partial_run, real_image, tmp_path_factory):
    """What an export said, with ONNX and with inference on the real image before and after it.

    It is of ``partial_run``, whose network is small, after the round in which all was shared. Do not write to its
    bundle.
    """
    folder = tmp_path_factory.mktemp("verified") / "x_segmentation"
    return export_bundle(partial_run[0], folder, onnx=True, verify=real_image)


def described(folder):
    return json.loads((folder / "configs" / "metadata.json").read_text())


def contents(folder):
    """Every file's bytes, and those of every file inside an archive."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        yield path.relative_to(folder).as_posix(), path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield from ((f"{path.name}:{name}", archive.read(name)) for name in archive.namelist())


# --- complete


def test_everything_that_makes_a_bundle_is_there(exported_bundle):
    assert {path.name for path in exported_bundle.iterdir()} == PARTS
    assert {path.name for path in (exported_bundle / "models").iterdir()} == {"model.pt", "model.ts"}
    assert {path.name for path in (exported_bundle / "docs").iterdir()} == {"README.md", "bundle.md"}
    assert not list(exported_bundle.rglob("*.tmp")) and not list(exported_bundle.rglob("__pycache__"))
    weights = torch.load(exported_bundle / "models" / "model.pt", weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in weights.values())
    open_network(exported_bundle, exported_bundle / "configs" / "inference.yaml")  # strict
    verify_metadata(meta_file=str(exported_bundle / "configs/metadata.json"), filepath=str(SCHEMA))


def test_one_real_case_before_and_after_the_export(verified, real_image):
    """Through everything: what was checked stands in the metadata and on the card, without the case's name."""
    made = verified
    assert any("Inference on one real image" in line and "equal voxel for voxel" in line for line in made.checks)
    federation = json.loads((made.out / "configs" / "metadata.json").read_text())["federation"]
    card = (made.out / "docs" / "README.md").read_text()
    assert federation["checks"] == made.checks and all(line in card for line in made.checks)
    assert real_image.name.split("_")[0] not in card
    assert {path.name for path in made.out.iterdir()} == PARTS
    assert not list(made.out.rglob("__pycache__")) and not [path for path in sys.path if "x_segmentation" in path]


@pytest.mark.parametrize("kind", ["inference", "train"])
def test_monai_finds_every_property(exported_bundle, fedmed_home, kind, tmp_path):
    site = demo_site("chest_ct_tiny", "ct_north", fedmed_home)
    facts = {"bundle_root": str(exported_bundle), "device": "cpu", "dataset_dir": str(site)}
    facts["dataset_dir"] += "/images" if kind == "inference" else ""
    facts |= {"cache_dir": str(tmp_path / "cache")} if kind == "train" else {}
    config = str(exported_bundle / "configs" / f"{kind}.yaml")
    made = ConfigWorkflow(config, workflow_type=kind, logging_file=False, **facts)
    made.initialize()
    assert made.check_properties() == []


@pytest.mark.slow
def test_inference_alone_needs_neither_overlay_nor_fedmed(exported_bundle, fedmed_home, tmp_path):
    image = sorted((demo_site("chest_ct_tiny", "ct_west", fedmed_home) / "images").iterdir())[0]
    (tmp_path / "in").mkdir()
    shutil.copy(image, tmp_path / "in")
    command = [sys.executable, "-c", WITHOUT_FEDMED, "run", "--config_file", "configs/inference.yaml"]
    places = ["--dataset_dir", str(tmp_path / "in"), "--output_dir", str(tmp_path / "out"), "--device", "cpu"]
    copy = shutil.copytree(exported_bundle, tmp_path / "elsewhere" / exported_bundle.name)
    done = subprocess.run([*command, *places], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result, source = nib.load(next((tmp_path / "out").iterdir())), nib.load(image)
    assert result.shape == source.shape and np.array_equal(result.affine, source.affine)
    assert set(np.unique(result.dataobj)) == {0, 1}


@pytest.mark.usefixtures("no_torchscript")
def test_the_base_bundle_is_untouched_and_data_stay_out(finished_run, tmp_path, monkeypatch):
    base = shutil.copytree(SHIPPED_BUNDLES / "covid_ct_segmentation", tmp_path / "b" / "covid_ct_segmentation")
    secrets = ("data/patient.nii.gz", "eval/mask.nii.gz", "models/old.pt", ".cache/x", "covid_ct/__pycache__/x.pyc")
    for secret in secrets:
        (base / secret).parent.mkdir(exist_ok=True, parents=True)
        (base / secret).write_bytes(b"secret")
    monkeypatch.setenv("FEDMED_BUNDLES", str(base.parent))
    before = bundle_digest(base)
    made = export_bundle(finished_run, tmp_path / "x_segmentation")
    assert bundle_digest(base) == before
    assert {path.name for path in made.out.iterdir()} == PARTS
    assert all(b"secret" not in content for _, content in contents(made.out))


@pytest.mark.usefixtures("no_torchscript")
def test_a_new_federation_starts_from_it(exported_bundle, write_tiny_job, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_BUNDLES", str(exported_bundle.parent))
    sites = {"ct_north": "supervised", "ct_east": "unsupervised"}
    spec = {"sites": sites, "overlays": [], "overrides": {}, "checkpoint": "model.pt", "steps": 1}
    job = write_tiny_job(tmp_path, "next", **spec)
    store = ModelStore(read_job(job), tmp_path)
    weights = torch.load(exported_bundle / "models" / "model.pt", weights_only=True)
    assert all(torch.equal(store.initial[name], weights[name]) for name in weights)
    run_job(job, tmp_path / "ws")
    again = export_bundle(tmp_path / "ws", tmp_path / "second" / "covid_ct_segmentation", model="last")
    meta = described(again.out)
    with pytest.raises(ExportError, match="lies in the bundle that the run trained"):
        export_bundle(tmp_path / "ws", exported_bundle, replace=True)
    assert again.version != described(exported_bundle)["version"] and again.version.count("+") == 1
    assert described(exported_bundle)["version"] in meta["changelog"] and len(meta["changelog"]) >= 4
    assert (again.out / "docs/bundle.md").read_text() == (exported_bundle / "docs/bundle.md").read_text()


# --- what it marks


@pytest.mark.usefixtures("no_torchscript")
def test_a_model_of_lungs_says_so_everywhere(written, tmp_path):
    said = {"name": "left lung", "label": "left lung", "unit": "l"}
    said |= {"code": {"value": "44029006", "meaning": "Left lung"}}
    made = export_bundle(written(classes=[said]), tmp_path / "lung_segmentation")
    meta, card = described(made.out), (made.out / "docs" / "README.md").read_text()
    assert meta["name"] == meta["task"] == "Segmentation of left lung in CT volumes"
    assert meta["label_classes"] == "1 is left lung; 0 is everything else" == meta["pred_classes"]
    assert meta["network_data_format"]["outputs"]["pred"]["channel_def"] == {"0": "background", "1": "left lung"}
    assert meta["classes"] == [said | {"code": said["code"] | {"scheme": "SCT"}}]
    assert card.startswith("# Segmentation of left lung in CT volumes") and "0 = background, 1 = left lung" in card
    said_elsewhere = card.partition("## Licence")[0].replace(meta["federation"]["base"]["bundle"], "").lower()
    assert "covid" not in said_elsewhere and "ground-glass" not in said_elsewhere
    config = ConfigParser()
    config.read_config(str(made.out / "configs" / "inference.yaml"))
    assert config.get_parsed_content("output_postfix") == "left_lung"
    assert [one.title for one in segments(meta, made.out)] == ["left lung"]


def test_where_a_study_names_none_the_bundle_s_own_class_is_meant(exported_bundle, finished_run):
    meta = described(exported_bundle)
    base = json.loads((SHIPPED_BUNDLES / "covid_ct_segmentation/configs/metadata.json").read_text())
    assert meta["classes"] == [base["classes"][0] | {"unit": "ml"}] and meta["classes"][0]["label"] == "COVID-19 lesion"
    assert (meta["task"], meta["label_classes"]) == (base["task"], base["label_classes"])
    run = json.loads((finished_run / "server/simulate_job/fedmed/run.json").read_text())
    assert run["classes"] == meta["classes"]


# --- where it comes from, without a name


def test_metadata_tell_the_run(exported_bundle, finished_run):
    meta, fed = described(exported_bundle), described(exported_bundle)["federation"]
    base = json.loads((SHIPPED_BUNDLES / "covid_ct_segmentation/configs/metadata.json").read_text())
    run = json.loads((finished_run / "server/simulate_job/fedmed/run.json").read_text())
    result = json.loads((finished_run / "server/simulate_job/fedmed/result.json").read_text())
    assert meta["version"].startswith(base["version"] + "+") and meta["intended_use"] == base["intended_use"]
    assert meta["changelog"].items() > base["changelog"].items() and meta["version"] in meta["changelog"]
    assert "without weights" in base["description"] and "without weights" not in meta["description"]
    for side in ("inputs", "outputs"):
        assert all(t["spatial_shape"] == [24, 24, 8] for t in meta["network_data_format"][side].values())
    assert (fed["job"], fed["rounds"], fed["steps"], fed["seed"]) == ("study", 2, 2, 0)
    assert fed["overlays"] == ["demo", "coarse"]
    assert fed["overrides"]["pixdim"] == [16.0, 16.0, 40.0] and fed["software"] == run["versions"]
    assert fed["number_of_sites"] == {"supervised": 1, "unsupervised": 1, "evaluate": 1}
    assert fed["training_cases"] == {"supervised": 3, "unsupervised": 3} and fed["commit"] == run.get("commit")
    assert fed["base"]["digest"] == run["config"]["model"]["digest"] and fed["model_round"] == result["best_round"] + 1
    dice = sorted(row["test_dice"] for row in fed["sites"])
    assert dice == sorted(row["dice_mean"] for row in result["test"].values())
    assert [row["role"] for row in fed["sites"]] == ["supervised", "unsupervised", "evaluate"]
    assert fed["sites"][0]["validation_dice"] == result["validation"]["ct_north"] == fed["validation_dice"]


def test_nothing_names_a_site_a_case_or_a_path(finished_run, partial_run, exported_bundle, verified):
    cases = [path.name.split(".")[0] for path in (Path(os.environ["FEDMED_HOME"]) / "demo").rglob("images/*.nii.gz")]
    runs = [str(finished_run), str(partial_run[0])]
    secrets = [*SITES, *cases, *runs, str(Path.home()), str(SHIPPED_BUNDLES.parent), "site-packages"]
    assert len(cases) > 8
    for folder in (exported_bundle, verified.out):
        for name, content in contents(folder):
            named = [secret for secret in secrets if secret.encode() in content]
            assert not named, f"{name} holds {named}"


@pytest.mark.parametrize(
    ("job", "sites", "said"),
    [
        ("klinikum_mainz_2026", ["Klinikum-Mainz"], "(withheld)"),
        ("St. Mary's pilot", ["st-marys"], "(withheld)"),
        ("covid_fssl", ["site-1", "site-2"], "covid_fssl"),
        ("covid_fssl", ["--"], "covid_fssl"),
    ],
)
def test_a_hospital_is_known_however_it_is_spelled(job, sites, said):
    assert withheld(job, sites) == said


def test_a_site_called_like_a_role_takes_no_setting_away():
    settings = {"sharing": {"supervised": "full"}, "user_weights": {"supervised": 2.0}, "by": {"supervised": 1}}
    assert without_names(settings, {"supervised": "supervised"}) == {"sharing": {"supervised": "full"}}
    args = {"beta": 0.9, "user_weights": {"a": 2.0}, "shares": {"a": 0.5}}
    assert without_names({"rule": {"path": "x.Y", "args": args}}, {"a": "supervised"}) == {
        "rule": {"path": "x.Y", "args": {"beta": 0.9}}
    }


def test_a_job_called_after_a_hospital_loses_its_name(written, two_levels, tmp_path):
    run = written(two_levels, name="ct_north_study", user_weights={"ct_north": 2.0})
    made = export_bundle(run, tmp_path / "x_segmentation")
    federation = described(made.out)["federation"]
    assert federation["job"] == "(withheld)" and federation["sites"][0]["weight"] == 2.0
    assert "user_weights" not in federation["aggregation"]
    assert "trained with masks; weight 2" in (made.out / "docs" / "README.md").read_text()
    assert all(b"ct_north" not in content for _, content in contents(made.out))


# --- the same again, and other formats


def test_the_same_run_makes_the_same_bundle(finished_run, exported_bundle, tmp_path):
    """Every byte but TorchScript's, which counts the compilations of its process; it computes the same."""
    again = export_bundle(finished_run, tmp_path / exported_bundle.name)
    one, other = (
        {p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in (exported_bundle, again.out)
    )
    assert one.keys() == other.keys()
    assert {str(name) for name in one if one[name] != other[name]} <= {"models/model.ts", DIGESTS}
    digests, others = (read_digests(folder)["files"] for folder in (exported_bundle, again.out))
    assert digests | {"models/model.ts": others["models/model.ts"]} == others
    x = torch.rand(1, 1, 64, 64, 16)
    a, b = (torch.jit.load(str(folder / "models/model.ts"))(x) for folder in (exported_bundle, again.out))
    assert torch.equal(a, b)


def test_torchscript_computes_the_same_and_carries_its_configs(exported_bundle):
    network, example = open_network(exported_bundle, exported_bundle / "configs" / "inference.yaml")
    extra = {"metadata.json": "", "inference.json": ""}
    script = torch.jit.load(str(exported_bundle / "models" / "model.ts"), _extra_files=extra)
    for n in (1, 3):
        assert torch.allclose(script(example(n)), network(example(n)), rtol=0, atol=1e-5)
    assert json.loads(extra["metadata.json"])["version"] == described(exported_bundle)["version"]
    assert json.loads(extra["inference.json"])["pixdim"] == [16.0, 16.0, 40.0]


def test_onnx_computes_the_same_for_any_number_of_windows(verified):
    made = verified
    content = (made.out / "models" / "model.onnx").read_bytes()
    onnx.checker.check_model(onnx.load_model(io.BytesIO(content)), full_check=True)
    session = onnxruntime.InferenceSession(content)
    network, example = open_network(made.out, made.out / "configs" / "inference.yaml")
    for n in (1, 2, 5):
        pred = session.run(["pred"], {"image": example(n).numpy()})[0]
        expected = network(example(n)).detach().numpy()
        assert np.abs(pred - expected).max() <= TOLERANCE * np.abs(expected).max()
    assert any("ONNX" in check for check in made.checks)


@pytest.mark.slow
def test_the_papers_network_in_both_formats(written, tmp_path):
    sizes = {"window_size": [128, 128, 32], "patch_size": [128, 128, 32]}
    made = export_bundle(written((), sizes), tmp_path / "x_segmentation", onnx=True)
    assert described(made.out)["network_data_format"]["inputs"]["image"]["spatial_shape"] == [128, 128, 32]
    assert "AHNet, 27.1 million parameters" in (made.out / "docs/README.md").read_text()


# --- refusals leave nothing behind


def test_another_bundle_than_the_runs_is_refused(finished_run, tmp_path, monkeypatch):
    other = shutil.copytree(SHIPPED_BUNDLES / "covid_ct_segmentation", tmp_path / "b" / "covid_ct_segmentation")
    with (other / "covid_ct" / "inferers.py").open("a") as stream:
        stream.write("# changed\n")
    monkeypatch.setenv("FEDMED_BUNDLES", str(other.parent))
    with pytest.raises(ExportError, match=r"at .* \(version .*, hash .*\) is not the one of the run \(version .*hash"):
        export_bundle(finished_run, tmp_path / "x_segmentation")


def test_a_bundle_that_is_not_installed_is_named(copied, tmp_path):
    path = copied / "server/simulate_job/fedmed/run.json"
    path.write_text(path.read_text().replace("covid_ct_segmentation", "lost_segmentation"))
    with pytest.raises(ExportError, match="bundle 'lost_segmentation' not found"):
        export_bundle(copied, tmp_path / "x_segmentation")


@pytest.mark.parametrize("name", ["model", "segmentation", "a b_segmentation", "x_segmentation_v2", "ä_segmentation"])
def test_a_name_that_hides_the_task_is_refused(finished_run, tmp_path, name):
    with pytest.raises(ExportError, match="end in _segmentation or _classification"):
        export_bundle(finished_run, tmp_path / name)


@pytest.mark.parametrize("version", ["new", "1.0", "0.1.0"])
def test_a_version_must_be_one_and_new(finished_run, tmp_path, version):
    with pytest.raises(ExportError, match=f"--version '{version}'"):
        export_bundle(finished_run, tmp_path / "x_segmentation", version=version)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_torchscript")
def test_only_an_exported_bundle_is_replaced(finished_run, tmp_path):
    out = tmp_path / "x_segmentation"
    made = export_bundle(finished_run, out, version="1.0.0")
    (out / "mine.txt").write_text("old")
    with pytest.raises(ExportError, match="exists; choose another folder or use --replace"):
        export_bundle(finished_run, out)
    assert export_bundle(finished_run, out, replace=True).version != made.version
    assert not (out / "mine.txt").exists() and [path.name for path in tmp_path.iterdir()] == [out.name]
    (out / "configs" / "metadata.json").write_text("{}")
    with pytest.raises(ExportError, match="is not an exported bundle and is not replaced"):
        export_bundle(finished_run, out, replace=True)


def full_disk(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["copy_parts", "write_configs", "write_torchscript", "_write_card"])
@pytest.mark.usefixtures("no_torchscript")
def test_a_full_disk_leaves_the_old_bundle_and_nothing_new(finished_run, exported_bundle, tmp_path, monkeypatch, step):
    out = shutil.copytree(exported_bundle, tmp_path / "x_segmentation")
    before = dict(contents(out))
    monkeypatch.setattr(bundle_module, step, full_disk)
    with pytest.raises(ExportError, match="cannot be written: .*No space left"):
        export_bundle(finished_run, out, replace=True)
    assert dict(contents(out)) == before and [path.name for path in tmp_path.iterdir()] == [out.name]
