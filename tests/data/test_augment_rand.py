"""Strong changes of single frames, each frame its own."""

import pytest
import torch

from fedmed.data.augment.xray import RandAugment
from fedmed.errors import FedMedError


@pytest.fixture
def frames():
    return torch.rand(12, 3, 16, 20, generator=torch.Generator().manual_seed(1))


def test_frames_draw_their_own_operations():
    """Equal frames become different: by chance at most a few of twelve draw the same pair."""
    frame = torch.rand(1, 3, 16, 20, generator=torch.Generator().manual_seed(1))
    views = RandAugment(seed=0)(frame.repeat(12, 1, 1, 1))
    assert len(torch.unique(views.flatten(1), dim=0)) >= 9


def test_pseudo_labels_are_made_of_the_frames_as_they_are(frames):
    assert torch.equal(RandAugment().weak(frames), frames)


def test_one_operation_is_what_kornia_makes_of_it(frames, monkeypatch):
    """Inversion alone: 1 - x, whatever the magnitude; and solarisation at 15 of 30: bright halves are turned."""
    changed = RandAugment(operations=1, magnitude=15)
    names = [type(change).__name__ for change in changed.changes]
    changed.changes = [changed.changes[names.index("Invert")]]
    assert torch.allclose(changed(frames), 1 - frames, atol=1e-6)
    changed = RandAugment(operations=1, magnitude=15)
    changed.changes = [changed.changes[names.index("Solarize")]]
    assert torch.allclose(changed(frames), torch.where(frames < 0.5, frames, 1 - frames), atol=1e-6)


@pytest.mark.parametrize("operations", [1, 3])
def test_as_many_operations_as_asked_for(frames, operations):
    changed, counts = RandAugment(operations=operations), []
    changed._changed = lambda change, some: counts.append(len(some)) or some
    assert torch.equal(changed(frames), frames) and sum(counts) == operations * len(frames)


def test_an_empty_batch(frames):
    assert RandAugment()(frames[:0]).shape == (0, 3, 16, 20)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"operations": 0}, "operations is 0; use 1 to 15"),
        ({"operations": 16}, "operations is 16"),
        ({"magnitude": 0}, "magnitude is 0; use a number above 0, below 30"),
        ({"magnitude": 30}, "magnitude is 30"),
    ],
)
def test_values_out_of_range(values, message):
    with pytest.raises(FedMedError, match=message):
        RandAugment(**values)


def test_another_shape():
    with pytest.raises(FedMedError, match=r"shape \(2, 1, 4, 4\); give \(B, 3, H, W\)"):
        RandAugment()(torch.zeros(2, 1, 4, 4))
