"""Colours of images, and images drawn to the colours of others."""

import pytest
import torch

from fedmed.data.augment.colours import DARK, Colours, colours, distance, mean_of, to_opponent, to_rgb, transfer
from fedmed.errors import DataError


def frames(count=4, tint=(0.9, 0.6, 0.4), seed=0):
    """Frames (3, 24, 24) of a tint."""
    base = 0.25 + 0.5 * torch.rand(count, 1, 24, 24, generator=torch.Generator().manual_seed(seed))
    return list((base * torch.tensor(tint).view(3, 1, 1)).clamp(0.05, 0.95))


def test_the_space_and_its_inverse():
    """Grey has no colour (Reinhard et al. 2001, Eq. 4 to 9)."""
    lightness, *opponent = to_opponent(torch.full((3, 1, 1), 0.5)).flatten().tolist()
    assert lightness == pytest.approx(3**0.5 * torch.log10(torch.tensor(0.5)).item(), abs=2e-3)
    assert opponent == pytest.approx([0, 0], abs=2e-3)
    image = frames()[0]
    assert torch.allclose(to_rgb(to_opponent(image)), image, atol=1e-3)


def test_images_get_the_mean_and_deviation_of_others():
    local, wanted = frames(), frames(tint=(0.6, 0.7, 0.5), seed=1)
    mine, theirs = colours(local), colours(wanted)
    assert distance(mine, theirs) > 3 and distance(mine, mine) == 0
    moved = colours([transfer(image, mine, theirs) for image in local])
    assert torch.allclose(moved.mean, theirs.mean, atol=5e-3)
    assert torch.allclose(moved.deviation, theirs.deviation, atol=5e-3)
    assert torch.allclose(transfer(local[0], mine, mine), local[0], atol=1e-3)


def test_borders_stay_black_and_count_for_nothing():
    local = frames()
    bordered = [torch.nn.functional.pad(image, (12, 12)) for image in local]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(colours(local), colours(bordered), strict=True))
    shown = transfer(bordered[0], colours(local), colours(frames(tint=(0.4, 0.9, 0.9))))
    assert not shown[:, :, :12].any() and (shown[:, :, 12:36].amax(dim=0) > DARK).all()


def test_a_clips_frames_are_changed_alike():
    local, wanted = colours(frames()), colours(frames(tint=(0.5, 0.7, 0.7), seed=2))
    one, other = frames(2, seed=5)
    both = transfer(torch.cat([one, other])[None], local, wanted)[0]
    assert torch.equal(both[:3], transfer(one, local, wanted)) and torch.equal(both[3:], transfer(other, local, wanted))


def test_sites_together_have_the_colours_of_all_their_images():
    first, second = frames(tint=(0.8, 0.5, 0.5)), frames(tint=(0.5, 0.8, 0.8), seed=3)
    both, pooled = mean_of([colours(first), colours(second)]), colours([*first, *second])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(both, pooled, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(both, Colours.of(both.stacked()), strict=True)), "as they travel"


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "at least one image that is not black"),
        ([torch.zeros(3, 8, 8)], "at least one image that is not black"),
        ([torch.full((3, 8, 8), 0.5)] * 2, "not all of one colour"),
        ([torch.full((1, 8, 8), 0.5)], "image 1 of the list has 1, from .*leave 'colour' out"),
        ([torch.full((3, 8, 8), 0.5), torch.full((3, 8, 8), 255.0)], "image 2 of the list has 3, from 255 to 255"),
    ],
)
def test_images_without_colours_are_refused(images, message):
    with pytest.raises(DataError, match=message):
        colours(images)
