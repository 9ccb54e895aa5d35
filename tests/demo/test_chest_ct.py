"""Properties of a synthetic chest CT, in numbers."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from fedmed_demo.chest_ct import make_scan
from fedmed_demo.hospitals import SITES, tiny

TINY = {name: tiny(profile) for name, profile in SITES.items()}
DISEASED = [name for name, profile in SITES.items() if name != "ct_control"]


@pytest.fixture(scope="module")
def north():
    """One scan at full size."""
    return make_scan(SITES["ct_north"], "CTN-0001")


@pytest.fixture(scope="module")
def scans():
    """Two tiny patients of every site."""
    return {name: [make_scan(p, f"{p.prefix}-{i:04d}") for i in (1, 2)] for name, p in TINY.items()}


def test_same_seed_same_bytes_and_other_seed_other_patient():
    profile = TINY["ct_east"]
    one, two, other = (make_scan(profile, "CTE-0003", seed) for seed in (5, 5, 6))
    assert one.image.tobytes() == two.image.tobytes()
    assert one.mask.tobytes() == two.mask.tobytes()
    assert np.array_equal(one.affine, two.affine)
    assert one.image.shape != other.image.shape or not np.array_equal(one.image, other.image)


def test_hounsfield_units_of_the_organs(north):
    image = north.image
    assert image.dtype == np.int16
    assert abs(np.median(image[:6, :6]) + 1000) < 15  # air in the corners
    inner = ndimage.binary_erosion(north.lungs, iterations=2) & (north.mask == 0)
    assert -900 < np.median(image[inner]) < -700
    assert (image > 300).mean() > 0.005  # bone
    soft = image[(image > -20) & (image < 90)]
    assert 35 < np.median(soft) < 60
    volume = north.lungs.sum() * np.abs(np.linalg.det(north.affine[:3, :3])) / 1e6
    assert 1.8 < volume < 6.5  # litres


def test_full_size_is_a_whole_chest_in_a_small_file(north):
    extent = np.array(north.image.shape) * np.sqrt((north.affine[:3, :3] ** 2).sum(axis=0))
    assert np.all(extent > [310, 240, 210]) and np.all(extent < [400, 320, 280])
    assert north.image.nbytes < 3e6


def test_heart_takes_room_from_the_left_lung(north):
    """Sides follow the affine: in RAS+ the first axis runs towards the patient's right."""
    lungs = nib.as_closest_canonical(nib.Nifti1Image(north.lungs.astype(np.uint8), north.affine)).get_fdata() > 0
    middle = lungs.shape[0] // 2
    assert lungs[middle:].sum() > 1.03 * lungs[:middle].sum()


@pytest.mark.parametrize("site", DISEASED)
def test_masks_are_binary_inside_the_lungs_and_of_plausible_size(site, scans):
    for made in scans[site]:
        assert made.mask.dtype == np.uint8 and made.mask.shape == made.image.shape
        assert set(np.unique(made.mask)) == {0, 1}
        assert not (made.mask.astype(bool) & ~ndimage.binary_dilation(made.lungs, iterations=2)).any()
        assert 0.002 < made.mask.sum() / made.lungs.sum() < 0.25


def test_lesions_are_denser_than_lung_and_mostly_ground_glass(north):
    inside = north.image[north.mask > 0]
    healthy = north.image[ndimage.binary_erosion(north.lungs, iterations=2) & (north.mask == 0)]
    assert np.median(inside) - np.median(healthy) > 120
    assert ((inside > -750) & (inside < -350)).mean() > 0.5


def test_a_patient_without_disease_has_an_empty_mask():
    made = make_scan(TINY["ct_control"], "CTC-0001", diseased=False)
    assert made.mask.max() == 0


def test_sites_differ_in_spacing_noise_direction_and_annotation(scans):
    spacing = {name: tuple(np.round(np.abs(np.diag(made[0].affine))[:3], 2)) for name, made in scans.items()}
    assert len({s[2] for s in spacing.values()}) >= 4
    assert len({p.annotation for p in SITES.values()}) == 3
    assert len({p.scanner.signs for p in SITES.values()}) == 3

    def grain(made):
        flat = made.image.astype(np.float32)
        fine = flat - ndimage.uniform_filter(flat, (3, 3, 1))
        soft = ndimage.binary_erosion((flat > -50) & (flat < 150), np.ones((5, 5, 1)))
        return fine[soft].std()

    assert grain(scans["ct_east"][0]) > 1.7 * grain(scans["ct_north"][0])


def test_readers_of_the_same_patient_disagree_as_their_styles_say():
    volumes = {}
    finer = replace(TINY["ct_north"], scanner=replace(SITES["ct_north"].scanner, pixel=3.5, slices=8.0))
    for style in ("tight", "generous", "threshold"):
        made = make_scan(replace(finer, annotation=style), "CTN-0002")
        volumes[style] = made.mask.sum()
    assert volumes["generous"] > 1.15 * volumes["tight"]
    assert volumes["threshold"] != volumes["tight"]


def test_affines_put_the_head_up_and_the_patient_off_the_origin(scans):
    for name, made in scans.items():
        for one in made:
            assert tuple(np.sign(np.diag(one.affine)[:3])) == SITES[name].scanner.signs
            assert np.linalg.norm(one.affine[:3, 3]) > 10
