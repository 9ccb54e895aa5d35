"""Masks of pictures and scores of classes."""

import nibabel as nib
import numpy as np
import pytest
import torch
from fedmed_label.writers import flat_label, keep_second_affine, read_width_first, scores, write_png
from monai.data import MetaTensor
from monai.transforms import LoadImaged
from PIL import Image

from fedmed.errors import BundleError

LABEL = np.array([[0, 1, 2, 2], [0, 0, 1, 2], [3, 0, 0, 0]], np.uint8)  # 3 rows, 4 columns


def case(prediction, width_first=True):
    """A case after postprocessing; its picture is 4 wide and 3 high."""
    image = MetaTensor(torch.zeros(3, 8, 8), meta={"spatial_shape": np.array([4, 3])})
    return {"pred": torch.as_tensor(prediction), "image": image, "width_first": width_first}


@pytest.mark.parametrize("width_first", [True, False])
def test_the_png_is_the_label_as_one_sees_it(width_first):
    prediction = (LABEL.T if width_first else LABEL)[None].astype(np.float32)
    with Image.open(write_png(flat_label(case(prediction, width_first), "pred", "image"))) as png:
        assert png.mode == "L" and np.array_equal(np.asarray(png), LABEL)


@pytest.mark.parametrize("width_first", [True, False])
def test_a_label_on_the_networks_grid_goes_back_to_the_pictures(width_first):
    large = np.kron(LABEL.T if width_first else LABEL, np.ones((4, 4)))[None]
    assert np.array_equal(flat_label(case(large, width_first), "pred", "image"), LABEL.T)


def test_one_hot_channels_become_one_label():
    onehot = np.eye(4, dtype=np.float32)[LABEL.T].transpose(2, 0, 1)
    assert np.array_equal(flat_label(case(onehot), "pred", "image"), LABEL.T)


@pytest.mark.parametrize(
    ("prediction", "words"),
    [
        (np.full((1, 4, 3), 0.5), "not class numbers"),
        (np.full((1, 4, 3), 256.0), "not class numbers"),
        (np.full((2, 4, 3), 1.0), "not one-hot"),
    ],
)
def test_values_other_than_class_numbers_are_an_error(prediction, words):
    with pytest.raises(BundleError, match=words):
        flat_label(case(prediction), "pred", "image")


@pytest.mark.parametrize("options", [{}, {"reader": "PILReader", "reverse_indexing": False}, {"reader": "ITKReader"}])
def test_the_order_of_axes_is_that_of_the_bundles_reader(tmp_path, options):
    path = str(tmp_path / "a.png")
    Image.fromarray(LABEL).save(path)
    loader = LoadImaged(keys="image", **options)
    loaded = np.asarray(loader({"image": path})["image"])
    assert np.array_equal(loaded, LABEL.T if read_width_first([loader], path) else LABEL)


def test_every_class_has_its_name_and_score():
    entries = scores(MetaTensor(torch.tensor([0.25, 0.75])), {1: "Out of body", 0: "background"})
    assert entries == [
        {"idx": 0, "label": "background", "score": 0.25, "called": False},
        {"idx": 1, "label": "Out of body", "score": 0.75, "called": True},
    ]


@pytest.mark.parametrize(("threshold", "called"), [(None, "b"), (0.5, "ab"), (0.61, "b"), (0.7, "b"), (0.9, "")])
def test_the_likeliest_class_is_called_or_each_from_the_threshold_on(threshold, called):
    entries = scores(torch.tensor([0.6, 0.7, 0.25], dtype=torch.float64), dict(enumerate("abc")), threshold)
    assert "".join(entry["label"] for entry in entries if entry["called"]) == called


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.7], [0.5, torch.nan]])
def test_scores_that_are_not_one_a_class_are_an_error(values):
    with pytest.raises(BundleError, match="for its 2 classes"):
        scores(torch.tensor(values), {0: "a", 1: "b"})


def test_a_reader_of_a_bundles_own_says_the_order_of_its_axes(tmp_path):
    class RowsFirst:
        width_first = False

    assert not read_width_first([RowsFirst()], str(tmp_path / "a.png"))


@pytest.mark.parametrize("apart", [0, 40])
def test_a_mask_keeps_both_affines_of_its_image(tmp_path, apart):
    affine, second = np.diag([-2.0, -2, 3, 1]), np.diag([-2.0, -2, 3, 1])
    second[2, 3] += apart
    image = nib.Nifti1Image(np.zeros((4, 5, 6), np.int16), affine)
    image.set_sform(affine, 1)
    image.set_qform(second, 1)
    nib.save(image, tmp_path / "image.nii.gz")
    nib.save(nib.Nifti1Image(np.ones((4, 5, 6), np.uint8), affine), tmp_path / "mask.nii")
    keep_second_affine(tmp_path / "image.nii.gz", tmp_path / "mask.nii")
    saved = nib.load(tmp_path / "mask.nii")
    assert np.allclose(saved.affine, affine) and np.array_equal(saved.dataobj, np.ones((4, 5, 6)))
    assert np.allclose(saved.get_qform(), second) or not apart
    keep_second_affine(tmp_path / "image.nii.gz", tmp_path / "mask.nrrd")
