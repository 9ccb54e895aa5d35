"""Three planes of a case: which way is up, what is read, what is refused."""

import nibabel as nib
import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed.reports.planes import ViewedCase, case_figure, cut, focus, pixel_size, read_case

SHAPE, SPACING = (12, 10, 8), (2.0, 3.0, 5.0)


def make_case(prediction, truth=None):
    return ViewedCase("case", np.zeros(SHAPE, np.float32), prediction, truth, SPACING)


def marked(*voxels):
    mask = np.zeros(SHAPE, bool)
    for voxel in voxels:
        mask[voxel] = True
    return mask


@pytest.mark.parametrize(
    ("plane", "row", "column", "size"),
    [("axial", 1, 2, (3.0, 2.0)), ("coronal", 3, 2, (5.0, 2.0)), ("sagittal", 3, 1, (5.0, 3.0))],
)
def test_planes_lie_as_a_radiologist_sees_them(plane, row, column, size):
    """A voxel two from the patient's right side, one from the front, three from the top."""
    volume = marked((SHAPE[0] - 3, SHAPE[1] - 2, SHAPE[2] - 4))
    picture = cut(volume, plane, (SHAPE[0] - 3, SHAPE[1] - 2, SHAPE[2] - 4))
    assert np.argwhere(picture).tolist() == [[row, column]]
    assert pixel_size(make_case(volume), plane) == size


def test_focus_is_where_the_largest_lesion_is_widest():
    truth = marked(np.s_[2:5, 3:6, 4], np.s_[3, 3:6, 5], (9, 9, 0))
    prediction = marked(np.s_[6:12, 0:9, 0:7])
    assert focus(make_case(prediction, truth)) == (3, 3, 4)
    assert focus(make_case(truth)) == (3, 3, 4)
    assert focus(make_case(truth, marked())) == (3, 3, 4)
    assert focus(make_case(marked())) == (6, 5, 4)


def test_volume_and_dice():
    case = make_case(marked(np.s_[0:4, 0, 0]), marked(np.s_[2:8, 0, 0]))
    assert case.millilitres(case.prediction) == pytest.approx(4 * 0.030)
    assert case.dice() == pytest.approx(0.4)
    assert make_case(marked()).dice() is None and make_case(marked(), marked()).dice() is None
    assert make_case(marked((0, 0, 0)), marked()).dice() == 0


@pytest.fixture
def files(tmp_path):
    """Return a function: axis codes -> paths of image and mask whose one marked voxel is at the right, front, top."""

    def write(axes="RAS"):
        codes = [nib.orientations.axcodes2ornt(codes) for codes in ("RAS", axes)]
        image, mask = np.full(SHAPE, -900, np.int16), np.zeros(SHAPE, np.uint8)
        image[-1, -1, -1], mask[-1, -1, -1] = 100, 1
        for name, array in (("image", image), ("mask", mask)):
            upright = nib.Nifti1Image(array, np.diag([*SPACING, 1.0]))
            nib.save(upright.as_reoriented(nib.orientations.ornt_transform(*codes)), tmp_path / f"{name}.nii.gz")
        return tmp_path / "image.nii.gz", tmp_path / "mask.nii.gz"

    return write


@pytest.mark.parametrize("axes", ["RAS", "LPS", "SAL"])
def test_any_orientation_is_read_alike(files, axes):
    case = read_case(*files(axes))
    assert case.name == "image" and case.truth is None and case.image.shape == SHAPE
    assert case.spacing == pytest.approx(SPACING)
    assert case.image[-1, -1, -1] == 100 and case.prediction[-1, -1, -1] and case.prediction.sum() == 1


def test_a_mask_in_another_axis_order_lies_on_its_image(files, tmp_path):
    image, mask = files("LPS")
    nib.save(nib.as_closest_canonical(nib.load(mask)), tmp_path / "turned.nii.gz")
    case = read_case(image, tmp_path / "turned.nii.gz")
    assert case.prediction[-1, -1, -1] and case.prediction.sum() == 1


def test_what_does_not_fit_is_refused(files, tmp_path):
    image, mask = files()
    other = tmp_path / "other.nii.gz"
    with pytest.raises(DataError, match="does not exist"):
        read_case(image, other)
    other.write_text("no image")
    with pytest.raises(DataError, match="cannot be read"):
        read_case(image, mask, other)
    for shape, moved, words in ((SHAPE[:2], 0, "a single volume"), ((3, 3, 3), 0, "but .* has"), (SHAPE, 4, "4.0 mm")):
        affine = np.diag([*SPACING, 1.0])
        affine[0, 3] = moved
        nib.save(nib.Nifti1Image(np.zeros(shape, np.uint8), affine), other)
        with pytest.raises(DataError, match=words):
            read_case(image, other)


@pytest.mark.parametrize("name", ["cut.nii", "cut.nii.gz"])
def test_a_file_that_is_cut_off_is_refused(tmp_path, name):
    values = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    nib.save(nib.Nifti1Image(values, np.eye(4)), tmp_path / name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:2000])
    with pytest.raises(DataError, match=f"{name} (cannot be read|is unreadable)"):
        read_case(tmp_path / name, tmp_path / name)


def test_the_figure_keeps_true_proportions_and_says_what_was_found():
    case = make_case(marked(np.s_[2:5, 3:6, 2:5]), marked(np.s_[2:5, 3:6, 2:6]))
    figure = case_figure(case, title="Case 7")
    width, height = figure.get_size_inches()
    boxes = [figure.axes[place].get_position() for place in (0, 2, 3)]  # axial, coronal, sagittal
    scales = []
    for box, (across, down) in zip(boxes, [(24, 30), (24, 40), (30, 40)], strict=False):
        scales += [box.width * width / across, box.height * height / down]
    assert np.allclose(scales, scales[0])
    words = " ".join(text.get_text() for text in figure.texts)
    assert words.startswith("Case 7") and "truth 1 ml" in words and "prediction 1 ml" in words and "Dice 0.86" in words
