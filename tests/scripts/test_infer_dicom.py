"""From a DICOM series to a DICOM segmentation by one command, and one clear error for each thing that can be wrong."""

import shutil
import stat
from functools import partial

import numpy as np
import pydicom
import pytest

from fedmed.bundles.infer import infer_image
from fedmed.data.prepare.dicom import convert_series
from fedmed.data.prepare.dicom_folder import series_in

STORED = np.random.default_rng(5).integers(0, 1500, (20, 18, 5)).astype(np.uint16)


@pytest.fixture
def series(tmp_path, write_dicom):
    """Folder of a CT series."""
    write_dicom(tmp_path / "ct", STORED, spacing=(6.0, 6.0, 10.0))
    return tmp_path / "ct"


@pytest.fixture
def run(run_script):
    return partial(run_script, "infer")


def test_the_segmentation_holds_what_the_bundle_infers(run, undecided_bundle, series, tmp_path):
    code, out, err = run(undecided_bundle, series, tmp_path / "seg.dcm", "--device", "cpu")
    assert (code, err) == (0, "") and "COVID-19 lesion: " in out and "ml" in out
    (files,) = series_in(series)
    convert_series(files, tmp_path / "scan.nii.gz")
    mask = np.asarray(infer_image(undecided_bundle, tmp_path / "scan.nii.gz", device="cpu").dataobj)
    result = pydicom.dcmread(tmp_path / "seg.dcm")
    assert (result.Modality, result.ManufacturerModelName) == ("SEG", "covid_ct_segmentation")
    place = {str(pydicom.dcmread(path).SOPInstanceUID): z for z, path in enumerate(files)}
    seen = np.zeros_like(mask)
    pixels = result.pixel_array.reshape(-1, result.Rows, result.Columns)
    for group, frame in zip(result.PerFrameFunctionalGroupsSequence, pixels, strict=True):
        source = group.DerivationImageSequence[0].SourceImageSequence[0]
        seen[:, :, place[source.ReferencedSOPInstanceUID]] = frame.T
    assert np.array_equal(seen, mask) and 0.05 < mask.mean() < 0.95


def test_only_the_owner_reads_it_and_only_replace_overwrites_it(run, exported_bundle, series, tmp_path):
    target = tmp_path / "seg.dcm"
    target.write_text("older")
    code, _, err = run(exported_bundle, series, target)
    assert code == 2 and err == f"error: {target} exists; --replace overwrites it\n" and target.read_text() == "older"
    assert run(exported_bundle, series, target, "--replace")[0] == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 and pydicom.dcmread(target).Modality == "SEG"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ct", "seg.dcm"]


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (shutil.rmtree, "does not exist; give the folder that fedmed export wrote"),
        (lambda root: (root / "models" / "model.pt").unlink(), "has no weights (models/model.pt)"),
        (lambda root: (root / "configs" / "inference.yaml").unlink(), "is not a bundle for inference"),
        (lambda root: (root / "models" / "model.pt").write_bytes(b"x" * 99), "damaged or changed: models/model.pt"),
    ],
)
def test_a_bundle_that_cannot_infer(run, exported_bundle, series, tmp_path, break_it, reason):
    shutil.copytree(exported_bundle, tmp_path / "bundle")
    break_it(tmp_path / "bundle")
    code, out, err = run(tmp_path / "bundle", series, tmp_path / "seg.dcm")
    assert (code, out) == (2, "") and err.startswith("error: ") and reason in err and err.count("\n") == 1
    assert not (tmp_path / "seg.dcm").exists()


def test_series_that_cannot_be_segmented(run, exported_bundle, series, tmp_path, write_dicom):
    write_dicom(tmp_path / "gap", STORED, leave_out=(2,), series=7)
    for arguments, reason in (
        ([series, tmp_path / "seg.dcm", "--series", "1.2.3.4"], "choose by --series UID: 1.2.3.1"),
        ([tmp_path / "gap", tmp_path / "seg.dcm"], "slices are missing"),
        ([series, tmp_path], "is a folder; give the name of a file"),
        ([series, tmp_path / "nowhere" / "seg.dcm"], f"the folder {tmp_path / 'nowhere'} does not exist"),
    ):
        code, _, err = run(exported_bundle, *arguments)
        assert code == 2 and err.startswith("error: ") and reason in err and err.count("\n") == 1
