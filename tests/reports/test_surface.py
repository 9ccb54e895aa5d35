"""The 3D picture: lungs found by density, lesions seen through them, the viewer where he says he stands."""

import numpy as np
import pytest

from fedmed.reports.planes import Viewpoint, find_lungs, render

SPACING = (4.0, 4.0, 5.0)
X, Y, Z = np.meshgrid(*(np.arange(n) * s for n, s in zip((64, 56, 40), SPACING, strict=True)), indexing="ij")


def ball(x, y, z, radius):
    """Bool mask; the centre in mm from the volume's middle."""
    middle = [float(axis.max()) / 2 for axis in (X, Y, Z)]
    return sum((a - m - c) ** 2 for a, m, c in zip((X, Y, Z), middle, (x, y, z), strict=True)) < radius**2


LUNGS = ball(-50, 0, 0, 40) | ball(50, 0, 0, 40)


def chest():
    image = np.full(X.shape, -1000.0)
    image[((X - X.max() / 2) / 115) ** 2 + ((Y - Y.max() / 2) / 90) ** 2 < 1] = 40
    image[LUNGS] = -850
    return image


def test_lungs_are_the_air_inside_the_body_with_their_vessels():
    image = chest()
    image[ball(0, 60, 0, 8)] = -900  # a little air elsewhere
    assert (find_lungs(image, SPACING) & ~LUNGS).sum() < 0.1 * LUNGS.sum()
    image[ball(50, 0, 0, 5)] = 40
    lungs = find_lungs(image, SPACING)
    assert lungs[ball(50, 0, 0, 5)].all() and lungs[LUNGS].all()


def test_lungs_of_a_tight_crop_and_of_no_chest():
    crop = np.s_[12:-12, 12:-12, :]
    tight = np.where(chest() == -1000, 40, chest())[crop]
    tight[:4, :4] = -850  # a lung that reaches the crop's edge
    tight[:6, :20, :20] = -850
    assert find_lungs(tight, SPACING)[:4, :4, 3:-3].all()
    for density in (-1000.0, 40.0):
        assert not find_lungs(np.full((20, 20, 20), density), SPACING).any()


def seen(picture, channel):
    """Centre (row, column) in 0..1 of what is mostly red (0) or blue (2) in a picture."""
    other = 2 - channel
    strong = (picture[..., 3] > 0.8) & (picture[..., channel] > 2 * picture[..., other])
    return np.argwhere(strong).mean(axis=0) / strong.shape


@pytest.mark.parametrize("shape", [(3, 3, 2), (1, 40, 1)])
def test_a_volume_smaller_than_the_edges_that_are_looked_at(shape):
    assert find_lungs(np.full(shape, 40.0), (2.0, 2.0, 3.0)).shape == shape


def test_the_viewer_stands_in_front():
    """High and on the patient's right is up and on the left; what is nearer hides what is farther."""
    lesion, far = ball(60, 10, 20, 12), ball(60, -20, 20, 6)
    picture = render(LUNGS, [(lesion, "#ff0000"), (far, "#0000ff")], SPACING, Viewpoint(0, 0, 160))
    assert picture.shape[2] == 4 and picture.min() >= 0 and picture.max() <= 1
    row, column = seen(picture, 0)
    assert row < 0.4 and column < 0.4
    assert not (picture[..., 2] > 2 * picture[..., 0] + 0.3)[picture[..., 3] > 0.95].any()


@pytest.mark.parametrize(
    ("view", "channel"), [(Viewpoint(0, 0, 120), 0), (Viewpoint(180, 0, 120), 2), (Viewpoint(0, 89, 120), 0)]
)
def test_walking_round_the_patient(view, channel):
    """Red is in front and slightly above, blue behind and below, on the same line."""
    lesions = [(ball(0, 30, 2, 14), "#ff0000"), (ball(0, -30, -2, 14), "#0000ff")]
    picture = render(LUNGS & False, lesions, SPACING, view)
    height, width = picture.shape[:2]
    row = 0.75 if view.elevation > 80 else 0.5
    pixel = picture[int(row * height), width // 2]
    assert pixel[3] > 0.9 and pixel[channel] > pixel[2 - channel]


def test_nothing_to_see():
    picture = render(LUNGS & False, [(LUNGS & False, "#ff0000")], SPACING, Viewpoint(pixels=40))
    assert not picture[..., 3].any()
