"""The numbers of momentum contrast, checked."""

import math
from dataclasses import dataclass

from fedmed.errors import FedMedError

KEY_POLICIES = ("copy", "refill", "keep")
OWN_KEYS = ("auto", "keep", "leave_out")
SMALL = 4  # images for each key of the queue, below which a site is small; the paper's smallest nodes have 4.9


@dataclass(frozen=True)
class ContrastOptions:
    """Numbers of :class:`fedmed.systems.fedmoco.engine.MomentumContrastEngine`.

    Attributes:
        queue_size: N, at least one batch.
        momentum: m in [0, 1).
        temperature: τ_e > 0.
        synthetic_fraction: η >= 0, of the queue: draws from other sites' statistics.
        box_cox: λ > 0 of these statistics.
        key_policy: ``copy``: each run's key encoder starts as the received model, the queue goes on; ``refill``: the
            queue begins with keys of that encoder too, for runs so short that most of their negatives would come from
            an earlier model; ``keep``: the key encoder continues from the end of the run before.
        milestones: epochs, counted over all of the site's rounds; from each on, the learning rate is multiplied once
            more by ``milestone_factor``; FedMoCo: 120 and 160.
        milestone_factor: above 0.
        own_keys: keys in the queue that are of the query's own image, false negatives: ``keep``: they are negatives, as
            in both papers; ``leave_out``: they are not; ``auto``: left out at a small site, one with fewer than 4
            images for each key. There 4 % of all queries or more meet one; at the papers' sizes 0.6 to 2.5 %.
        max_grad_norm: gradients are clipped to this norm; None = no clipping.

    Raises:
        FedMedError: a value outside its range.
    """

    queue_size: int = 1024
    momentum: float = 0.999
    temperature: float = 0.2
    synthetic_fraction: float = 0.05
    box_cox: float = 0.5
    key_policy: str = "copy"
    milestones: tuple[int, ...] = ()
    milestone_factor: float = 0.1
    max_grad_norm: float | None = None
    own_keys: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))  # a configuration gives a list
        norm = self.max_grad_norm
        wrong = {
            "queue_size": (self.queue_size < 1, "1 or more keys, at least one batch, such as 1024"),
            "momentum": (not 0 <= self.momentum < 1, "a number from 0 to below 1, such as 0.999"),
            "temperature": (not 0 < self.temperature < math.inf, "a positive number, such as 0.2"),
            "synthetic_fraction": (not 0 <= self.synthetic_fraction < math.inf, "0 (none) or more, such as 0.05"),
            "box_cox": (not 0 < self.box_cox < math.inf, "a positive number, such as 0.5"),
            "key_policy": (self.key_policy not in KEY_POLICIES, ", ".join(KEY_POLICIES)),
            "own_keys": (self.own_keys not in OWN_KEYS, ", ".join(OWN_KEYS)),
            "milestones": (any(epoch < 0 for epoch in self.milestones), "epochs from 0, such as [120, 160]"),
            "milestone_factor": (not 0 < self.milestone_factor < math.inf, "a positive number, such as 0.1"),
            "max_grad_norm": (norm is not None and not norm > 0, "a positive number, or null for no clipping"),
        }
        for name, (bad, use) in wrong.items():
            if bad:
                raise FedMedError(f"MomentumContrastEngine: {name} is {getattr(self, name)!r}; use {use}")

    def rate_factor(self, epoch: float) -> float:
        """Factor of the learning rate after ``epoch`` epochs of all rounds; a site's optimizer is new in each round."""
        return self.milestone_factor ** sum(epoch >= milestone for milestone in self.milestones)

    def drops_own_keys(self, images: int | None) -> bool:
        """Tell whether keys of a query's own image are left out at a site with so many images; None: not known."""
        if self.own_keys != "auto":
            return self.own_keys == "leave_out"
        return images is not None and images < SMALL * self.queue_size

    def draws_of_each(self, sites: int) -> int:
        """``floor(η N / (K - 1))``: draws from each of K - 1 other ``sites`` (FedMoCo, Eq. 5)."""
        # 1e-9: 0.29 · 100 is 28.999999999999996 in floating point.
        return math.floor(self.synthetic_fraction * self.queue_size / max(1, sites) + 1e-9)
