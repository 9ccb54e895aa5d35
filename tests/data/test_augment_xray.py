import math

import pytest
import torch

from fedmed.data.augment.clip_views import ClipViews
from fedmed.data.augment.xray import RandAugment, XrayViews
from fedmed.errors import FedMedError

STILL = {"scale": (1, 1), "ratio": (1, 1), "flip": 0, "degrees": 0, "brightness": 0, "contrast": 0}


VIEWS = {
    "radiographs": (lambda seed: XrayViews(24, seed), (8, 1, 24, 24)),
    "clips": (ClipViews, (3, 4, 3, 20, 28)),
    "frames": (RandAugment, (12, 3, 16, 20)),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_the_seed_alone_decides_and_neither_the_batch_nor_other_random_numbers_change(kind):
    make, shape = VIEWS[kind]
    batch = torch.rand(shape, generator=torch.Generator().manual_seed(0)).round()
    before, state = batch.clone(), torch.get_rng_state()
    first, again = make(5), make(5)
    one, two = first(batch), first(batch)
    assert torch.equal(one, again(batch)) and torch.equal(two, again(batch)) and not torch.equal(one, two)
    assert not torch.equal(one, make(6)(batch)) and one.shape == shape and one.min() >= 0 and one.max() <= 1
    assert torch.equal(batch, before) and torch.equal(torch.get_rng_state(), state)


def noise(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def blobs(count=1, size=33, at=(0.25, 0.4), width=0.05):
    """A bright blob at (x, y), as fractions of the image."""
    line = torch.linspace(0, 1, size)
    x, y = line[None, :] - at[0], line[:, None] - at[1]
    return torch.exp(-(x**2 + y**2) / (2 * width**2)).expand(count, 1, size, size).clone()


def centre(image):
    """Centre of mass (x, y) in pixels."""
    line = torch.arange(image.shape[-1], dtype=torch.float32)
    return torch.stack([(image * line).sum(), (image * line[:, None]).sum()]) / image.sum()


def test_without_any_change_it_is_the_identity():
    batch = noise(3, 1, 20, 24)
    assert torch.allclose(XrayViews((20, 24), **STILL)(batch), batch, atol=1e-5)


def test_resizes():
    batch = blobs(2, 32)
    views = XrayViews(64, **STILL)(batch)
    assert views.shape == (2, 1, 64, 64)
    assert torch.allclose((centre(views[0, 0]) + 0.5) / 64, (centre(batch[0, 0]) + 0.5) / 32, atol=0.01)


def test_flip_mirrors_columns():
    batch = noise(4, 1, 16, 16)
    assert torch.allclose(XrayViews(16, **STILL | {"flip": 1.0})(batch), batch.flip(-1), atol=1e-5)
    views = XrayViews(16, seed=3, **STILL | {"flip": 0.5})(batch.repeat(25, 1, 1, 1))
    flipped = torch.isclose(views, batch.repeat(25, 1, 1, 1).flip(-1), atol=1e-4).flatten(1).all(dim=1)
    assert 0.3 < flipped.float().mean() < 0.7


def test_rotation_turns_about_the_middle_within_its_range():
    views = XrayViews(65, **STILL | {"degrees": 10.0})(blobs(64, 65, at=(0.8, 0.5)))
    angles = []
    for view in views:
        x, y = (centre(view[0]) - 32).tolist()
        assert math.hypot(x, y) == pytest.approx(0.3 * 64, abs=0.3)
        angles.append(math.degrees(math.atan2(y, x)))
    assert -10.3 < min(angles) < -6 and 6 < max(angles) < 10.3


def test_crops_lie_inside_the_image_and_cover_the_asked_share():
    size = 64
    ramp = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))[None].float() / size
    views = XrayViews(size, **STILL | {"scale": (0.25, 0.25)})(ramp.expand(40, -1, -1, -1))
    height = (views[:, 0].amax((1, 2)) - views[:, 0].amin((1, 2))) * size + 1
    assert torch.allclose(height, torch.full((40,), 32.0), atol=1.5)
    starts = views[:, 0].amin((1, 2)) * size
    assert starts.min() >= 0 and starts.max() <= 33 and starts.std() > 4  # anywhere


def test_ratio_stretches():
    ramp = torch.stack(torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij"))[None].float() / 64
    views = XrayViews(64, **STILL | {"scale": (0.25, 0.25), "ratio": (1.5, 1.5)})(ramp)
    height, width = ((views[0, axis].max() - views[0, axis].min()).item() for axis in (0, 1))
    assert width / height == pytest.approx(1.5, abs=0.1) and width * height == pytest.approx(0.25, abs=0.02)


def test_brightness_adds_and_contrast_scales_about_the_mean():
    batch = 0.4 + 0.2 * noise(50, 1, 8, 8)
    mean, spread = batch.mean((1, 2, 3)), batch.std((1, 2, 3))
    views = XrayViews(8, **STILL | {"brightness": 0.2})(batch)
    added = views.mean((1, 2, 3)) - mean
    assert torch.allclose(views - batch, added.view(-1, 1, 1, 1).expand_as(batch), atol=1e-5)
    assert -0.2 <= added.min() < -0.1 and 0.1 < added.max() <= 0.2
    views = XrayViews(8, **STILL | {"contrast": 0.3})(batch)
    assert torch.allclose(views.mean((1, 2, 3)), mean, atol=1e-5)
    factor = views.std((1, 2, 3)) / spread
    assert 0.7 <= factor.min() < 0.8 and 1.2 < factor.max() <= 1.301


def test_a_constant_image_stays_constant():
    views = XrayViews(32)(torch.full((16, 1, 48, 40), 0.5))
    assert (views.amax((1, 2, 3)) - views.amin((1, 2, 3))).max() < 1e-5


def test_each_image_is_changed_by_itself():
    views = XrayViews(16)(noise(1, 1, 16, 16).expand(4, 1, 16, 16))
    assert all(not torch.equal(views[0], other) for other in views[1:])


def test_errors():
    wrong = {"image_size": 0, "scale": (0, 1), "ratio": (2, 1), "flip": 2, "degrees": 181, "brightness": -1}
    for name, value in (wrong | {"contrast": 1.5}).items():
        with pytest.raises(FedMedError, match=f"XrayViews: {name} is"):
            XrayViews(**{"image_size": 8, name: value})
    with pytest.raises(FedMedError, match=r"\(1, 8, 8\)"):
        XrayViews(8)(torch.zeros(1, 8, 8))
