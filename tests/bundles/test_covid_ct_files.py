"""Files of a folder that the CT bundle takes for scans, those that it refuses, and where its masks lie."""

import nibabel as nib
import numpy as np
import pytest
from covid_ct.errors import BundleInputError
from covid_ct.files import list_images
from covid_ct.headers import CheckScand, KeepQformd
from monai.transforms import LoadImaged, SaveImaged


def test_folders_without_images_are_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BundleInputError, match="holds no .nii or .nii.gz file"):
            list_images(folder)
    (tmp_path / "case 1").mkdir()
    (tmp_path / "case 1" / "ct.nii.gz").touch()
    with pytest.raises(BundleInputError, match=r"those below, such as case 1/ct\.nii\.gz, are not looked for"):
        list_images(tmp_path)
    (tmp_path / "b.nii").touch()
    (tmp_path / "a.nii.gz").touch()
    assert [path.rsplit("/")[-1] for path in list_images(tmp_path)] == ["a.nii.gz", "b.nii"]


def test_own_results_hidden_and_other_files_are_no_scans(tmp_path, caplog):
    names = ("a.nii.gz", "a_covid.nii.gz", "b_covid.nii.gz", "._a.nii.gz", "a.nii.gz.json", "C.NII.GZ")
    for name in names:
        (tmp_path / name).touch()
    result = [path.rsplit("/")[-1] for path in list_images(tmp_path, "covid")]
    assert result == ["C.NII.GZ", "a.nii.gz", "b_covid.nii.gz"]
    assert "1 masks of an earlier inference are left out, such as a_covid" in caplog.text


def test_two_scans_of_one_name_are_refused(tmp_path):
    for name in ("a.nii", "a.nii.gz"):
        (tmp_path / name).touch()
    with pytest.raises(BundleInputError, match=r"holds a\.nii and a\.nii\.gz, whose masks would have one name"):
        list_images(tmp_path)


@pytest.mark.parametrize(
    ("unit", "value", "said"), [("meter", 1, "in metres"), ("micron", 1, "in micrometres"), ("mm", np.nan, "1 voxels")]
)
def test_scans_in_other_units_or_with_holes_are_refused(tmp_path, unit, value, said):
    array = np.ones((4, 5, 6), np.float32)
    array[0, 0, 0] = value
    image = nib.Nifti1Image(array, np.eye(4))
    image.header.set_xyzt_units(unit)
    nib.save(image, tmp_path / "a.nii")
    with pytest.raises(BundleInputError, match=rf"a\.nii: .*{said}"):
        CheckScand("image")(LoadImaged("image")({"image": str(tmp_path / "a.nii")}))


def scan_of(low, high, path):
    nib.save(nib.Nifti1Image(np.linspace(low, high, 120, dtype=np.float32).reshape(4, 5, 6), np.eye(4)), path)
    return LoadImaged("image")({"image": str(path)})


def test_normalised_scans_are_refused_and_a_lost_intercept_is_told(tmp_path, caplog):
    with pytest.raises(BundleInputError, match=r"a\.nii: values lie in -0\.01…0\.53, which are not HU"):
        CheckScand("image")(scan_of(-0.01, 0.53, tmp_path / "a.nii"))
    CheckScand("image")(scan_of(-1024, 500, tmp_path / "b.nii"))
    assert "intercept" not in caplog.text
    CheckScand("image")(scan_of(-20, 1059, tmp_path / "c.nii"))
    assert "c.nii: no value near that of air, -1000 (from -20 on): has the rescale intercept been lost?" in caplog.text


@pytest.mark.parametrize("apart", [0, 40])
def test_a_mask_has_both_affines_of_its_image(tmp_path, apart):
    sform, qform = np.diag([-2.0, -2, 3, 1]), np.diag([-2.0, -2, 3, 1])
    qform[2, 3] += apart
    image = nib.Nifti1Image(np.ones((4, 5, 6), np.int16), sform)
    image.set_sform(sform, 1)
    image.set_qform(qform, 1)
    (tmp_path / "in").mkdir()
    nib.save(image, tmp_path / "in" / "a.nii.gz")
    case = LoadImaged("image", ensure_channel_first=True)({"image": str(tmp_path / "in" / "a.nii.gz")})
    save = SaveImaged("image", output_dir=tmp_path / "out", output_postfix="x", separate_folder=False,
                      savepath_in_metadict=True, resample=False)  # fmt: skip
    KeepQformd("image")(save(case))
    saved = nib.load(tmp_path / "out" / "a_x.nii.gz")
    assert np.allclose(saved.get_qform(), qform) and np.allclose(saved.get_sform(), sform)
    assert np.array_equal(saved.get_fdata(), np.ones((4, 5, 6)))
