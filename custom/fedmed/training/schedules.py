"""Learning-rate and weight schedules."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from fedmed.errors import FedMedError


class OneCycle(OneCycleLR):
    """One cycle over all steps of a training."""

    def get_lr(self) -> list[float | Tensor]:
        """As in the base class; FedMedError past its end."""
        if self.last_epoch > self.total_steps:
            raise FedMedError(_past_end(self.last_epoch, self.total_steps))
        return super().get_lr()


class HeldOneCycle(OneCycleLR):
    """One cycle over the first steps of a training; its last rate stays for the others."""

    def get_lr(self) -> list[float | Tensor]:
        """As in the base class, which refuses steps after the cycle."""
        step, self.last_epoch = self.last_epoch, min(self.last_epoch, self.total_steps - 1)
        try:
            return super().get_lr()
        finally:
            self.last_epoch = step


def one_cycle(
    optimizer: Optimizer,
    max_lr: float,
    total_steps: int,
    steps_before: int = 0,
    final_div_factor: float = 1e4,
    pct_start: float = 0.3,
    cycle_share: float = 1.0,
) -> OneCycleLR:
    """One cycle (Smith and Topin 2019) from max/25 up to ``max_lr`` at 30 % of the steps, down to max/250000; cosine.

    The momentum is left alone. PyTorch's default cycles it: a plain SGD silently gets a momentum of 0.85 to 0.95, and
    AdamW's first beta is overwritten.

    Args:
        optimizer: its learning rate is set at once; call ``step()`` after each optimizer step.
        max_lr: highest learning rate.
        total_steps: steps of the whole training, over all rounds.
        steps_before: those that are done, where a site begins a round with an optimizer that is made anew.
        final_div_factor: the last rate is the first, ``max_lr``/25, divided by this; 0.4 is a tenth of ``max_lr``.
        pct_start: share of the cycle's steps, 0 to 1, over which the rate goes up.
        cycle_share: share of all steps, above 0, at most 1, over which the cycle goes; then the last rate stays.

    Raises:
        FedMedError: such a share is out of range, or more steps are done, now or later, than there are in all.
    """
    if steps_before > total_steps:
        raise FedMedError(_past_end(steps_before, total_steps))
    if not 0 < cycle_share <= 1:
        raise FedMedError(f"cycle_share is {cycle_share:g}; it must be above 0 and at most 1")
    cycle = partial(
        OneCycle if cycle_share == 1 else HeldOneCycle,
        optimizer,
        max_lr=max_lr,
        total_steps=max(1, round(total_steps * cycle_share)),
        cycle_momentum=False,
        final_div_factor=final_div_factor,
        pct_start=pct_start,
    )
    schedule = cycle()
    # A second one goes on from the rates that the first one has set.
    return cycle(last_epoch=steps_before - 1) if steps_before else schedule


def _past_end(step: int, steps: int) -> str:
    return (
        f"the learning rate's one cycle ends after {steps} steps, and training has come to step {step}; give it the "
        "steps of all rounds ('total_steps'), or leave overlay 'one_cycle' out of a run without an end"
    )


def sigmoid_ramp_up(step: int, steps: int) -> float:
    """Factor ``exp(-5 (1 - t)^2)`` with ``t = step / steps``, at most 1 (Laine and Aila 2017, appendix A).

    Args:
        step: steps done before this one.
        steps: length of the ramp; 0 = none, the factor is 1. It starts at exp(-5) = 0.0067 and is exactly 1 from
            ``step = steps`` on.
    """
    return 1.0 if step >= steps else math.exp(-5 * (1 - step / steps) ** 2)


@contextmanager
def scaled_learning_rate(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Multiply all learning rates by ``factor`` for as long as the context lasts."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
