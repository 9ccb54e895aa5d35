"""Strong views of CT patches, drawn as the site without labels draws them."""

import json

import nibabel as nib
import numpy as np
import pytest
from monai.utils import set_determinism

from fedmed.bundles.bundle import Bundle

SIZE, HIDDEN = (16, 16, 8), (4, 4, 2)
STRONG = {"strong": True, "patch_size": list(SIZE), "student_cutout": list(HIDDEN), "pixdim": [3.0, 3.0, 6.0]}


@pytest.fixture
def batches(tmp_path):
    """Return a function: settings of the bundle -> 30 patches of a scan of one patch's size with a bright corner."""
    scan = np.random.default_rng(0).integers(-780, -720, SIZE)
    scan[:6, :6, :3] += 500
    nib.save(nib.Nifti1Image(scan.astype(np.int16), np.diag([3, 3, 6, 1])), tmp_path / "a.nii.gz")
    (tmp_path / "datalist.json").write_text(json.dumps({"unlabeled": [{"image": "a.nii.gz"}]}))

    def draw(**settings):
        bundle = Bundle("covid_ct_segmentation", ["demo", "unlabelled", "agreement"], {**STRONG, **settings})
        facts = {"dataset_dir": str(tmp_path), "datalist": str(tmp_path / "datalist.json"), "cache_dir": None}
        parser = bundle.parser(**facts, device="cpu", seed=0)
        set_determinism(0)
        dataset = parser.get_parsed_content("train#dataset")
        result = [dataset[0] for _ in range(30)]
        set_determinism(None)
        return [one[0] if isinstance(one, list) else one for one in result]

    return draw


def alike(image, strong):
    """Correlation over the voxels that the student sees."""
    seen = strong != 0
    return np.corrcoef(image[seen], strong[seen])[0, 1]


def test_the_student_sees_other_intensities_at_the_same_places(batches):
    (plain,) = {np.asarray(one["image"]).tobytes() for one in batches(strong=False)}
    changed = 0
    for one in batches():
        image, strong = np.asarray(one["image"][0]), np.asarray(one["strong"][0])
        assert image.shape == strong.shape == SIZE and image.min() >= 0 and image.max() <= 1
        assert image.tobytes() == plain, "what the two models see is the patch as it is"
        moved = [alike(np.roll(image, by, axis), strong) for axis in range(3) for by in (-2, 2)]
        mirrored = [alike(np.flip(image, axis), strong) for axis in range(3)]
        assert alike(image, strong) > max(moved + mirrored)
        changed += not np.array_equal(image, strong)
    assert changed > 25


def test_boxes_are_hidden_from_the_student_alone(batches):
    shares = [float((np.asarray(one["strong"]) == 0).mean()) for one in batches()]
    box = np.prod(HIDDEN) / np.prod(SIZE)
    assert 0.0 in shares and max(shares) <= 3 * box * 1.1
    assert sum(share >= box for share in shares) > 8, "in half of the patches one to three boxes"


def test_without_the_option_there_is_no_strong_view(batches):
    assert all("strong" not in one for one in batches(strong=False))
