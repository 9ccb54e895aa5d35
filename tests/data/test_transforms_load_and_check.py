import nibabel as nib
import numpy as np
import pytest

from fedmed.data.cases import CheckCased, LoadCased
from fedmed.errors import DataError

AFFINE = np.diag([-2.0, -2.0, 5.0, 1.0])


@pytest.fixture
def check(save_nifti):
    """Save arrays, load them and check them."""

    def run(image, mask=None, image_affine=AFFINE, mask_affine=AFFINE):
        case = {"image": str(save_nifti("image.nii.gz", image, image_affine))}
        if mask is not None:
            case["label"] = str(save_nifti("mask.nii.gz", mask, mask_affine))
        return CheckCased()(LoadCased(["image", "label"])(case))

    return run


def test_a_good_case_passes_unchanged(check, scan):
    image, mask = scan()
    case = check(image, mask)
    assert np.array_equal(np.asarray(case["image"])[0], image) and np.array_equal(np.asarray(case["label"])[0], mask)


def test_a_case_without_mask_and_a_volume_with_a_channel_axis_pass(check, scan):
    assert "label" not in check(scan()[0])
    assert check(scan()[0][..., None])["image"].shape == (1, 24, 20, 10)


@pytest.mark.parametrize("key", ["image", "label"])
@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x1f\x8b\x08broken", "cut"])
def test_an_unreadable_file_is_named(save_nifti, scan, key, content):
    whole, broken = save_nifti("a.nii.gz", scan()[0]), save_nifti("broken.nii.gz", scan()[0])
    broken.write_bytes(broken.read_bytes()[:2000] if content == "cut" else content)
    with pytest.raises(DataError, match=rf"broken.nii.gz: the {key} cannot be read \(.+\); restore or remove it"):
        LoadCased(["image", "label"])({"image": str(whole), "label": str(whole), key: str(broken)})


def not_finite(value):
    image = np.zeros((24, 20, 10), np.float32)
    image[3, 4, 5] = value
    return image


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((24, 20), np.int16), "the image has shape .* a volume of at least two slices"),
        (np.zeros((24, 20, 1), np.int16), "the image has shape .* a volume of at least two slices"),
        (np.zeros((24, 0, 10), np.int16), "the image (is empty|cannot be read)"),
        (np.zeros((24, 20, 10, 2), np.int16), "the file holds 2 volumes"),
        *((not_finite(value), "1 voxels are NaN or infinite") for value in (np.nan, np.inf, -np.inf)),
        (np.linspace(-0.5, 0.5, 4800, dtype=np.float32).reshape(24, 20, 10), "values lie in -0.5…0.5, .* not HU"),
    ],
)
def test_images_that_are_no_volume_in_hu(check, image, words):
    with pytest.raises(DataError, match=f"image.nii.gz: {words}"):
        check(image)


def test_mask_of_another_shape(check, scan):
    image, mask = scan()
    with pytest.raises(DataError, match=r"mask.nii.gz: the mask has shape \(1, 24, 20, 9\), its image .*image.nii.gz"):
        check(image, mask[..., :-1])


def test_mask_of_another_affine(check, scan):
    image, mask = scan()
    with pytest.raises(DataError, match="mask.nii.gz: the mask lies up to 92.0 mm away"):
        check(image, mask, mask_affine=np.diag([2.0, -2.0, 5.0, 1.0]))  # 23 steps of 4 mm


def test_a_mask_with_its_rows_reversed_is_moved_onto_its_image(check, scan):
    image, mask = scan()
    other = nib.Nifti1Image(mask, AFFINE).as_reoriented([[0, 1], [1, -1], [2, 1]])
    case = check(image, np.asarray(other.dataobj), mask_affine=other.affine)
    assert mask.any() and np.array_equal(np.asarray(case["label"])[0], mask)
    assert np.allclose(case["label"].affine, AFFINE)


def test_voxels_in_metres(save_nifti, scan):
    path = save_nifti("image.nii.gz", scan()[0])
    image = nib.load(path)
    image.header.set_xyzt_units("meter")
    nib.save(nib.Nifti1Image(scan()[0], image.affine, image.header), path)
    with pytest.raises(DataError, match=r"image.nii.gz: its header gives voxels in metres"):
        CheckCased()(LoadCased("image")({"image": str(path)}))


def test_rounding_of_an_affine_is_tolerated(check, scan):
    image, mask = scan()
    affine = AFFINE.copy()
    affine[:3, 3] += 0.01
    check(image, mask, mask_affine=affine)


def test_mask_with_other_values(check, scan):
    image, mask = scan()
    mask[0, 0, :2] = (2, 255)
    with pytest.raises(DataError, match="mask.nii.gz: the mask holds 2, 255 besides 0 and 1"):
        check(image, mask)
