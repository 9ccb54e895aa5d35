"""fedmed view case on a tiny scan."""

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from tests.commands import fedmed


@pytest.fixture(scope="module")
def script():
    return fedmed("view", "case")


@pytest.fixture
def scan(tmp_path):
    image = np.full((20, 16, 10), -1000, np.int16)
    image[2:-2, 2:-2] = 40
    image[5:15, 5:12, 2:8] = -850
    mask = np.zeros(image.shape, np.uint8)
    mask[8:12, 7:10, 3:6] = 1
    for name, array in (("scan", image), ("mask", mask), ("empty", mask * 0)):
        nib.save(nib.Nifti1Image(array, np.diag([-8.0, -8.0, 12.0, 1.0])), tmp_path / f"{name}.nii.gz")
    return tmp_path


@pytest.mark.parametrize("mask", ["mask", "empty"])
def test_a_picture_is_written(script, scan, capsys, mask):
    out = scan / "new" / "picture.png"
    files = [str(scan / f"{name}.nii.gz") for name in ("scan", mask, "mask")]
    assert script([*files[:2], "--truth", files[2], "--out", str(out), "--dpi", "60"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    picture = np.asarray(Image.open(out).convert("RGB"), dtype=int)
    orange = (picture[..., 0] - picture[..., 2] > 60).sum()
    blue = (picture[..., 2] - picture[..., 0] > 60).sum()
    assert min(picture.shape[:2]) > 300 and orange > 20 and blue > 20


def test_a_file_that_does_not_fit_is_an_error(script, scan, capsys):
    assert script([str(scan / "scan.nii.gz"), str(scan / "none.nii.gz"), "--out", str(scan / "p.png")]) == 2
    assert "none.nii.gz does not exist" in capsys.readouterr().err
    (scan / "file").touch()
    files = [str(scan / "scan.nii.gz"), str(scan / "mask.nii.gz")]
    assert script([*files, "--out", str(scan / "file" / "p.png")]) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_file_that_does_not_fit_into_memory_is_an_error(script, scan, capsys, claim_shape):
    claim_shape(scan / "mask.nii.gz", 1900, 1900, 1900)
    files = [str(scan / f"{name}.nii.gz") for name in ("scan", "mask")]
    assert script([*files, "--out", str(scan / "p.png")]) == 2
    assert "mask.nii.gz does not fit into memory" in capsys.readouterr().err
