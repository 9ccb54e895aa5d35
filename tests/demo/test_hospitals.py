"""The sites of the paper's tables: their lists, what tells them apart, and that older kinds keep their voxels."""

import json
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from fedmed.files import CHECKOUT
from fedmed_demo import KINDS, chest_ct, demo_site
from fedmed_demo.chest_ct import make_scan
from fedmed_demo.hospitals import COARSE_SITES, SITES, tiny

HOSPITALS = ("image_1", "image_2", "image_3")
CONTROLS = ("image_n", "image_lidc", "image_p")


@pytest.fixture(scope="module")
def scans():
    """Two diseased patients of every hospital; of image_3, those whom two groups of readers drew."""
    return {
        name: [make_scan(COARSE_SITES[name], f"{COARSE_SITES[name].prefix}-{i:04d}") for i in (2, 3)]
        for name in HOSPITALS
    }


def test_every_site_has_its_lists_and_a_site_file():
    assert KINDS["chest_ct_coarse"] is COARSE_SITES and tuple(COARSE_SITES) == HOSPITALS + CONTROLS
    lists = ("training", "validation", "testing", "unlabeled")
    counts = [tuple(COARSE_SITES[name].counts[k] for k in lists) for name in HOSPITALS]
    assert counts == [(60, 8, 14, 10), (12, 6, 14, 44), (24, 6, 14, 20)]
    assert all(COARSE_SITES[name].counts == {"unlabeled": 40} for name in CONTROLS)
    for name in COARSE_SITES:
        assert "demo: chest_ct_coarse\n" in (CHECKOUT / "site_configs" / "demo" / f"{name}.yaml").read_text()


def test_masks_only_where_a_list_is_labelled(tmp_path, monkeypatch):
    for name in ("image_2", "image_p"):
        profile = COARSE_SITES[name]
        monkeypatch.setitem(COARSE_SITES, name, replace(profile, counts=dict.fromkeys(profile.counts, 1)))
    home = demo_site("chest_ct_coarse", "image_2", tmp_path)
    assert home.parent.name == f"chest_ct_coarse-v{chest_ct.COARSE_VERSION}-seed0"
    lists = json.loads((home / "datalist.json").read_text())
    assert list(lists) == ["training", "validation", "testing", "unlabeled"]
    assert not any("label" in entry for entry in lists.pop("unlabeled"))
    for entry in (entry for entries in lists.values() for entry in entries):
        assert nib.load(home / entry["label"]).get_fdata().max() == 1
    control = demo_site("chest_ct_coarse", "image_p", tmp_path)
    assert list(json.loads((control / "datalist.json").read_text())) == ["unlabeled"]
    assert not (control / "labels").exists()


@pytest.mark.parametrize("name", HOSPITALS)
def test_lesions_lie_within_the_lungs_and_can_be_seen_at_this_grid(name, scans):
    for made in scans[name]:
        assert made.mask.any() and not (made.mask.astype(bool) & ~ndimage.binary_dilation(made.lungs)).any()
        assert made.mask.sum() > 100
        healthy = made.image[ndimage.binary_erosion(made.lungs) & (made.mask == 0)]
        assert np.median(made.image[made.mask > 0]) - np.median(healthy) > 90


def test_hospitals_differ_in_grid_noise_lesions_and_readers(scans):
    for name, many in scans.items():
        spacing = np.abs(np.diag(many[0].affine))[:3]
        assert np.all((spacing > 4.8) & (spacing < 8.1)) and many[0].image.size < 140_000, name
    assert len({made[0].affine[2, 2] for made in scans.values()}) == 3

    def grain(made):
        calm = ndimage.binary_erosion((made.image > -50) & (made.image < 150), np.ones((3, 3, 1)))
        return (made.image - ndimage.uniform_filter(made.image.astype(np.float32), (3, 3, 1)))[calm].std()

    noise = [np.mean([grain(made) for made in scans[name]]) for name in HOSPITALS]
    assert noise[0] < noise[1] < noise[2]


def test_each_patient_of_the_biased_site_was_drawn_by_one_of_two_groups(scans):
    styles = COARSE_SITES["image_3"].annotation
    drawn = []
    for number, made in zip((2, 3), scans["image_3"], strict=True):
        alone = [
            make_scan(replace(COARSE_SITES["image_3"], annotation=style), f"I3-{number:04d}").mask for style in styles
        ]
        assert alone[0].sum() > 1.1 * alone[1].sum()
        drawn.append([np.array_equal(made.mask, mask) for mask in alone].index(True))
    assert set(drawn) == {0, 1}


def test_controls_have_no_infection():
    profiles = COARSE_SITES
    assert profiles["image_n"].prevalence == 0
    assert profiles["image_lidc"].lesions.ground_glass == profiles["image_lidc"].lesions.consolidation == 0
    dense = profiles["image_p"].lesions
    assert dense.consolidation >= 10 * dense.ground_glass > 0


def test_voxels_of_the_older_kinds_are_those_of_their_version():
    """A change of them needs a new ``chest_ct.VERSION``, or a folder of earlier scans is taken for the new ones."""
    made = make_scan(tiny(SITES["ct_west"]), "CTW-0001")
    assert chest_ct.VERSION == 5
    assert made.image.shape == (53, 42, 27) and int(made.mask.sum()) == 1641
    assert made.image.astype(np.float64).mean() == pytest.approx(-342.2831, abs=0.01)
    assert made.affine[:3, 3] == pytest.approx([-165.685268, -149.904562, -335.975234], abs=1e-6)
