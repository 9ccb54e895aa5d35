"""The examples give what the bundle itself gives."""

import runpy
import shutil
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from monai.bundle import run as run_bundle

from fedmed.bundles.infer import infer_image

EXAMPLE = Path(__file__).parents[2] / "examples" / "infer_nifti.py"


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """A synthetic CT with axes that point left, back and up, as scanners have them."""
    path = tmp_path_factory.mktemp("scan") / "scan.nii.gz"
    values = np.random.default_rng(11).integers(-1000, 400, (30, 26, 7)).astype(np.int16)
    nib.save(nib.Nifti1Image(values, np.diag([-4.0, -4.5, 8.0, 1.0]) + np.eye(4)[3] * [[9], [-7], [5], [0]]), path)
    return path


@pytest.fixture(scope="module")
def expected(undecided_bundle, scan):
    """What the bundle makes of it in this process."""
    return infer_image(undecided_bundle, scan, device="cpu")


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs the example with arguments, in this process."""

    def call(*arguments: Path) -> None:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *map(str, arguments)])
        runpy.run_path(str(EXAMPLE), run_name="__main__")

    return call


def share_that_differs(path: Path, expected: nib.Nifti1Image) -> float:
    """Part of the voxels, after a check of grid and type."""
    image = nib.load(path)
    assert image.get_data_dtype() == np.uint8 and np.array_equal(image.affine, expected.affine)
    mask = np.asarray(expected.dataobj)
    assert 0.01 < mask.mean() < 0.99
    return float((np.asarray(image.dataobj) != mask).mean())


def test_our_inference_is_monai_s_own(undecided_bundle, scan, expected, tmp_path, monkeypatch):
    """``python -m monai.bundle run`` calls the same function in the folder of the bundle."""
    monkeypatch.chdir(undecided_bundle)
    monkeypatch.syspath_prepend(undecided_bundle)
    places = {"bundle_root": ".", "dataset_dir": str(scan.parent), "output_dir": str(tmp_path)}
    run_bundle(config_file="configs/inference.yaml", device="cpu", logging_file=False, **places)
    assert share_that_differs(tmp_path / "scan_covid.nii.gz", expected) == 0


def test_torchscript_gives_the_bundle_s_mask(run, undecided_bundle, scan, expected, tmp_path):
    run(undecided_bundle / "models" / "model.ts", scan, tmp_path / "mask.nii.gz")
    assert share_that_differs(tmp_path / "mask.nii.gz", expected) < 1e-3  # the threshold lies where most voxels are


def test_onnx_gives_the_bundle_s_mask(run, undecided_bundle, scan, expected, tmp_path):
    from fedmed.export.formats import write_onnx

    root = tmp_path / undecided_bundle.name
    shutil.copytree(undecided_bundle, root)
    write_onnx(root, root / "configs" / "inference.yaml")
    run(root / "models" / "model.onnx", scan, tmp_path / "mask.nii.gz")
    assert share_that_differs(tmp_path / "mask.nii.gz", expected) < 1e-3


def test_without_arguments_it_says_how_to_call_it(run):
    with pytest.raises(SystemExit, match="infer_nifti.py covid_ct_segmentation/models/model.ts"):
        run()


def test_it_needs_nothing_of_fedmed():
    text = EXAMPLE.read_text(encoding="utf-8")
    assert "fedmed" not in text and "covid_ct." not in text
