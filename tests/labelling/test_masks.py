import os

import itk
import nibabel as nib
import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed.labelling.masks import mask_bytes, read_grid, read_mask, volume_ml
from tests.labelling.scans import AFFINE, SHAPE, save_nifti


@pytest.fixture
def mask():
    return (np.random.default_rng(0).random(SHAPE) > 0.6).astype(np.uint8)


@pytest.fixture
def save(tmp_path):
    return lambda values, affine=AFFINE, name="m.nii.gz": save_nifti(tmp_path / name, values, affine)


def save_nrrd(path, values, affine=AFFINE):
    image = itk.image_from_array(np.ascontiguousarray(values.transpose(2, 1, 0)))
    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine
    sizes = np.linalg.norm(lps[:3, :3], axis=0)
    image.SetSpacing(sizes.tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    image.SetDirection(itk.matrix_from_array(np.ascontiguousarray(lps[:3, :3] / sizes)))
    itk.imwrite(image, str(path), compression=True)
    return path


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64, np.uint16])
def test_numbers_of_any_type_are_taken_when_they_are_0_and_1(mask, save, dtype):
    read = read_mask(save(mask.astype(dtype)), SHAPE, AFFINE)
    assert read.dtype == np.uint8 and np.array_equal(read, mask)


def test_a_fourth_axis_of_length_one_is_dropped(mask, save):
    assert np.array_equal(read_mask(save(mask[..., None]), SHAPE, AFFINE), mask)


@pytest.mark.parametrize("name", ["m.nrrd", "m.seg.nrrd"])
def test_nrrd_is_read_on_the_grid_of_its_image(mask, tmp_path, name):
    assert np.array_equal(read_mask(save_nrrd(tmp_path / name, mask), SHAPE, AFFINE), mask)


def test_a_mask_with_other_axes_is_put_in_place(mask, save):
    stored = nib.Nifti1Image(mask, AFFINE)
    for axes in ("RAS", "PIR", "SLA"):
        turned = stored.as_reoriented(
            nib.orientations.ornt_transform(nib.io_orientation(AFFINE), nib.orientations.axcodes2ornt(axes))
        )
        path = save(np.asanyarray(turned.dataobj), turned.affine, f"{axes}.nii.gz")
        assert np.array_equal(read_mask(path, SHAPE, AFFINE), mask), axes


def test_a_cropped_mask_is_put_in_place(mask, tmp_path):
    mask[:2] = mask[:, :1] = mask[..., 3:] = 0
    moved = AFFINE.copy()
    moved[:3, 3] = (AFFINE @ [2, 1, 0, 1])[:3]
    assert np.array_equal(read_mask(save_nrrd(tmp_path / "m.seg.nrrd", mask[2:, 1:, :3], moved), SHAPE, AFFINE), mask)


def test_a_larger_mask_is_taken_when_its_foreground_lies_inside(mask, save):
    moved = AFFINE.copy()
    moved[:3, 3] = (AFFINE @ [-2, -2, -2, 1])[:3]
    large = np.pad(mask, 2)
    assert np.array_equal(read_mask(save(large, moved), SHAPE, AFFINE), mask)
    large[0, 0, 0] = 1
    with pytest.raises(DataError, match="foreground lies outside the image"):
        read_mask(save(large, moved), SHAPE, AFFINE)


def shifted(millimetres):
    moved = AFFINE.copy()
    moved[0, 3] += millimetres
    return moved


def test_rounding_of_the_affine_is_taken(mask, save):
    assert np.array_equal(read_mask(save(mask, shifted(0.05)), SHAPE, AFFINE), mask)


def oblique():
    """A scanner's: turned about two axes, far from its centre, with the noise of printed direction cosines."""
    c, s = np.cos(0.2), np.sin(0.2)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    affine = np.eye(4)
    affine[:3, :3] = (turn + np.random.default_rng(1).normal(0, 1e-5, (3, 3))) @ np.diag([-0.7, -0.7, 1.25])
    affine[:3, 3] = [187.123456, 203.654321, -1743.219876]
    return affine


@pytest.mark.parametrize("ending", [".nii.gz", ".nrrd", "cropped"])
def test_an_oblique_scan_is_the_same_grid_for_every_program(tmp_path, ending):
    """NIfTI keeps affines in float32 and its qform as a quaternion; NRRD in decimals; Slicer crops to the segment."""
    affine, shape = oblique(), (128, 128, 40)
    mask = np.zeros(shape, np.uint8)
    mask[40:90, 30:60, 5:30] = 1
    if ending == ".nii.gz":
        image = nib.Nifti1Image(mask, None)
        image.set_qform(affine.astype(np.float32), code=1)  # ITK's choice; the image itself has the sform
        nib.save(image, path := tmp_path / "m.nii.gz")
    else:
        moved = affine.copy()
        part = mask[38:92, 28:62, 3:33] if ending == "cropped" else mask
        moved[:3, 3] = (affine @ ([38, 28, 3, 1] if ending == "cropped" else [0, 0, 0, 1]))[:3]
        path = save_nrrd(tmp_path / "m.seg.nrrd", part, moved.astype(np.float32).astype(float))
    assert np.array_equal(read_mask(path, shape, affine), mask)


@pytest.mark.parametrize(
    ("change", "affine", "words"),
    [
        (lambda m: m, shifted(0.3), "mask lies up to 0.3 mm away from its image"),
        (lambda m: m, AFFINE @ np.diag([1.1, 1, 1, 1]), "lies up to 0.35 mm away"),
        (lambda m: m[:3], AFFINE @ np.diag([2, 1, 1, 1]), r"mask has shape 3×5×4, image 6×5×4"),
        (lambda m: m * 2, AFFINE, "values other than 0 and 1: 2"),
        (lambda m: m * np.float32(0.5), AFFINE, "values other than 0 and 1: 0.5"),
        (lambda m: np.where(m, np.nan, 0).astype(np.float32), AFFINE, "values other than 0 and 1: nan"),
        (lambda m: np.stack([m, m], -1), AFFINE, "mask has shape 6×5×4×2"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(mask, save, change, affine, words):
    with pytest.raises(DataError, match=words):
        read_mask(save(change(mask), affine), SHAPE, AFFINE)


def test_files_that_are_no_masks(tmp_path):
    for name, words in (("m.nii.gz", "unreadable"), ("m.nrrd", "unreadable"), ("m.png", "'.png' files are not read")):
        (tmp_path / name).write_bytes(b"\x1f\x8b not a mask")
        with pytest.raises(DataError, match=words):
            read_mask(tmp_path / name, SHAPE, AFFINE)


def test_overlapping_segments_are_refused(mask, tmp_path):
    layers = itk.image_from_array(np.ascontiguousarray(np.stack([mask.T, mask.T], -1)), is_vector=True)
    itk.imwrite(layers, str(tmp_path / "m.seg.nrrd"))
    with pytest.raises(DataError, match="several overlapping segments"):
        read_mask(tmp_path / "m.seg.nrrd", SHAPE, AFFINE)


def test_the_grid_of_what_is_no_volume(save, tmp_path):
    with pytest.raises(DataError, match=r"flat.nii.gz has shape \(6, 5\)"):
        read_grid(save(np.zeros((6, 5), np.uint8), name="flat.nii.gz"))
    with pytest.raises(DataError, match="photo.png is not a NIfTI"):
        read_grid(tmp_path / "photo.png")


def test_images_whose_place_is_unclear_take_no_corrections(save):
    path = save(np.zeros(SHAPE, np.int16))
    image, second = nib.load(path), AFFINE.copy()
    image.header.set_xyzt_units("meter")
    nib.save(image, path.with_name("m.nii"))
    with pytest.raises(DataError, match="m.nii: its header gives voxels in metres"):
        read_grid(path.with_name("m.nii"))
    second[2, 3] += 40
    image = nib.Nifti1Image(np.zeros(SHAPE, np.int16), AFFINE)
    image.set_sform(AFFINE, 1)
    image.set_qform(second, 1)
    nib.save(image, path)
    with pytest.raises(DataError, match="sform and qform are up to 40 mm apart; the sform is used here, and maybe not"):
        read_grid(path)


def test_written_masks_are_read_back_and_equal_masks_give_equal_bytes(mask, tmp_path):
    (tmp_path / "m.nii.gz").write_bytes(mask_bytes(mask, AFFINE))
    image = nib.load(tmp_path / "m.nii.gz")
    assert image.get_data_dtype() == np.uint8 and np.array_equal(np.asanyarray(image.dataobj), mask)
    assert np.allclose(image.affine, AFFINE) and image.header.get_xyzt_units()[0] == "mm"
    assert mask_bytes(mask, AFFINE) == mask_bytes(mask.astype(bool), AFFINE)
    assert volume_ml(mask, AFFINE) == pytest.approx(mask.sum() * 0.7 * 0.7 * 2 / 1000)


def test_masks_that_claim_too_much_are_refused_by_their_headers(mask, save, tmp_path, claim_shape):
    for read in (read_grid, lambda path: read_mask(path, SHAPE, AFFINE)):
        with pytest.raises(DataError, match=r"m\.nii\.gz does not fit into memory"):
            read(claim_shape(save(mask), 1900, 1900, 1900))
    nrrd = save_nrrd(tmp_path / "m.nrrd", mask)
    nrrd.write_bytes(nrrd.read_bytes().replace(b"sizes: 6 5 4", b"sizes: 9999 9999 9999"))
    with pytest.raises(DataError, match="it does not fit into memory: 9999×9999×9999 values"):
        read_mask(nrrd, SHAPE, AFFINE)


@pytest.mark.parametrize("name", ["m.nii.gz", "m.nrrd"])
def test_a_pipe_is_no_mask(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is a named pipe, not a file"):
        read_mask(tmp_path / name, SHAPE, AFFINE)
