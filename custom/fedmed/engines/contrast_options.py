"""The numbers of momentum contrast, checked."""

import math
from dataclasses import dataclass

from fedmed.engines.schedules import milestone_rate
from fedmed.errors import FedMedError

KEY_POLICIES = ("copy", "refill", "keep")


@dataclass(frozen=True)
class ContrastOptions:
    """Numbers of the method; see :class:`MomentumContrastEngine`."""

    queue_size: int
    momentum: float
    temperature: float
    synthetic_fraction: float
    box_cox: float
    key_policy: str
    milestones: tuple[int, ...]
    milestone_factor: float
    max_grad_norm: float | None

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        milestone_rate(1.0, 0, self.milestones, self.milestone_factor)
        norm = self.max_grad_norm
        wrong = {
            "queue_size": (self.queue_size < 1, "1 or more keys, at least one batch, such as 1024"),
            "momentum": (not 0 <= self.momentum < 1, "a number from 0 to below 1, such as 0.999"),
            "temperature": (not 0 < self.temperature < math.inf, "a positive number, such as 0.2"),
            "synthetic_fraction": (not 0 <= self.synthetic_fraction < math.inf, "0 (none) or more, such as 0.05"),
            "box_cox": (not 0 < self.box_cox < math.inf, "a positive number, such as 0.5"),
            "key_policy": (self.key_policy not in KEY_POLICIES, ", ".join(KEY_POLICIES)),
            "max_grad_norm": (norm is not None and not norm > 0, "a positive number, or null for no clipping"),
        }
        for name, (bad, use) in wrong.items():
            if bad:
                raise FedMedError(f"MomentumContrastEngine: {name} is {getattr(self, name)!r}; use {use}")
