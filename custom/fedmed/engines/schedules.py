"""Learning-rate schedules."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR


def one_cycle(optimizer: Optimizer, max_lr: float, total_steps: int) -> OneCycleLR:
    """One cycle (Smith and Topin 2019) from max/25 up to ``max_lr`` at 30 % of the steps, down to max/250000; cosine.

    The momentum is left alone. PyTorch's default cycles it: a plain SGD silently gets a momentum of 0.85 to 0.95, and
    AdamW's first beta is overwritten.

    Args:
        optimizer: its learning rate is set at once; call ``step()`` after each optimizer step.
        max_lr: highest learning rate.
        total_steps: steps of the whole training, over all rounds.
    """
    return OneCycleLR(optimizer, max_lr=max_lr, total_steps=total_steps, cycle_momentum=False)
