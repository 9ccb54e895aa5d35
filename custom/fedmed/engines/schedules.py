"""Learning-rate and weight schedules."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from fedmed.errors import FedMedError


def one_cycle(optimizer: Optimizer, max_lr: float, total_steps: int, steps_before: int = 0) -> OneCycleLR:
    """One cycle (Smith and Topin 2019) from max/25 up to ``max_lr`` at 30 % of the steps, down to max/250000; cosine.

    The momentum is left alone. PyTorch's default cycles it: a plain SGD silently gets a momentum of 0.85 to 0.95, and
    AdamW's first beta is overwritten.

    Args:
        optimizer: its learning rate is set at once; call ``step()`` after each optimizer step.
        max_lr: highest learning rate.
        total_steps: steps of the whole training, over all rounds.
        steps_before: those that are done, where a site begins a round with an optimizer that is made anew.
    """
    schedule = OneCycleLR(optimizer, max_lr=max_lr, total_steps=total_steps, cycle_momentum=False)
    if not steps_before:
        return schedule
    # The one before has set the rates from which torch goes on.
    return OneCycleLR(
        optimizer, max_lr=max_lr, total_steps=total_steps, cycle_momentum=False, last_epoch=steps_before - 1
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


def milestone_rate(base: float, epoch: float, milestones: Sequence[int], factor: float = 0.1) -> float:
    """Learning rate that is multiplied by ``factor`` at each milestone; FedMoCo: 0.03, from 120 0.003, from 160 0.0003.

    A federated site builds its optimizer anew in each round, so the epoch must be counted over all rounds.

    Args:
        base: rate of epoch 0.
        epoch: epochs done before this one, in all rounds.
        milestones: epochs from which on another ``factor`` counts, in any order; none = constant.
        factor: above 0.

    Raises:
        FedMedError: a factor that is not positive, or a negative milestone.
    """
    if not 0 < factor < math.inf or any(milestone < 0 for milestone in milestones):
        raise FedMedError(
            f"learning-rate milestones {list(milestones)} with factor {factor}: use epochs from 0, such as [120, 160], "
            "and a positive factor, such as 0.1"
        )
    return base * factor ** sum(epoch >= milestone for milestone in milestones)
