import pytest
import torch

from fedmed.data.augment import Augment, Compose, ScaleShift, weak_view
from fedmed.errors import FedMedError


class Add(Augment):
    """Stands for a method with a weak and a strong view."""

    def __init__(self, weak, strong):
        self.small, self.large = weak, strong

    def __call__(self, batch):
        return batch + self.large

    def weak(self, batch):
        return batch + self.small


def test_one_scale_and_one_shift_a_patch_within_the_level():
    batch = 0.2 + 0.5 * torch.rand(64, 2, 4, 4, 2)  # too far from 0 and 1 to be clipped
    changed = ScaleShift(0.1, seed=1)(batch)
    scales, shifts = [], []
    for patch, new in zip(batch.double(), changed.double(), strict=True):
        system = torch.stack([patch.flatten(), torch.ones(patch.numel(), dtype=torch.float64)], 1)
        solution = torch.linalg.lstsq(system, new.flatten()[:, None]).solution
        assert torch.allclose(system @ solution, new.flatten()[:, None], atol=1e-6)
        scales.append(solution[0].item() - 1)
        shifts.append(solution[1].item())
    for drawn in (torch.tensor(scales), torch.tensor(shifts)):
        assert drawn.abs().max() <= 0.1 + 1e-6
        assert drawn.min() < -0.05 and drawn.max() > 0.05
        assert len(drawn.unique()) == 64


def test_clips_to_the_input_range_and_leaves_the_batch_alone():
    batch = torch.tensor([0.0, 0.5, 1.0]).repeat(32, 1, 1)
    before = batch.clone()
    changed = ScaleShift(1.0, seed=2)(batch)
    assert changed.min() == 0 and changed.max() == 1
    assert torch.equal(batch, before)
    assert changed.shape == batch.shape and changed.dtype == batch.dtype


def test_level_zero_is_the_identity():
    batch = torch.rand(2, 1, 3, 3)
    assert torch.equal(ScaleShift(0.0)(batch), batch)


def test_seed_alone_decides_and_the_global_generator_is_untouched():
    batch = torch.rand(3, 1, 4, 4)
    state = torch.get_rng_state()
    first = ScaleShift(seed=7)
    again = ScaleShift(seed=7)
    torch.testing.assert_close(first(batch), again(batch), rtol=0, atol=0)
    assert not torch.equal(first(batch), ScaleShift(seed=7)(batch))  # the second call draws anew
    assert not torch.equal(ScaleShift(seed=8)(batch), ScaleShift(seed=7)(batch))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_numbers_on_a_gpu():
    batch = torch.rand(3, 1, 8, 8, 8)
    on_gpu = ScaleShift(seed=3)(batch.cuda()).cpu()
    assert torch.allclose(on_gpu, ScaleShift(seed=3)(batch), atol=1e-6)


def test_compose_chains_student_and_weak_views():
    batch = torch.zeros(1, 1, 2)
    both = Compose([Add(1, 10), lambda x: x * 2, Add(3, 30)])
    assert both(batch).unique().item() == 50
    assert both.weak(batch).unique().item() == 4  # a plain callable has no weak view of its own


def test_weak_view_is_the_patch_itself_by_default():
    batch = torch.rand(1, 1, 2)
    assert weak_view(ScaleShift(), batch) is batch
    assert weak_view(lambda x: x + 1, batch) is batch
    assert torch.equal(weak_view(Add(1, 2), batch), batch + 1)


@pytest.mark.parametrize("level", [-0.1, 1.5, float("nan")])
def test_bad_level(level):
    with pytest.raises(FedMedError, match="ScaleShift: level is"):
        ScaleShift(level)
