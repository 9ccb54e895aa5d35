"""Strong random changes of single frames: RandAugment (Cubuk et al. 2020, arXiv 1909.13719) by kornia's operations."""

import torch
from kornia.augmentation.auto.operations import OperationBase
from kornia.augmentation.auto.rand_augment import ops
from kornia.augmentation.auto.rand_augment.rand_augment import default_policy
from torch import Tensor

from fedmed.data.augment.patches import Augment
from fedmed.errors import FedMedError

HIGHEST = 30  # magnitudes run from 0 to it


class RandAugment(Augment):
    """Some of fifteen operations on each frame, one after the other, all of the same magnitude.

    Each frame draws its own operations, all different; kornia's own class draws them once a batch. What pseudo-labels
    are made of stays as it is. The operations draw from torch's global generator, which is seeded for them from a
    generator of this object and left as it was.

    Args:
        seed: of the draws, which are made on the CPU.
        operations: how many a frame.
        magnitude: above 0, below 30; of operations that go both ways the direction is drawn, factors of colour,
            contrast, brightness and sharpness go from 0.1 to 1.9.

    Raises:
        FedMedError: an argument outside its range; when called, a batch of another shape.
    """

    def __init__(self, seed: int = 0, operations: int = 2, magnitude: int = 10) -> None:
        self.changes: list[OperationBase] = [getattr(ops, name)(low, high) for ((name, low, high),) in default_policy]
        if not 1 <= operations <= len(self.changes):
            raise FedMedError(f"RandAugment: operations is {operations}; use 1 to {len(self.changes)}")
        if not 0 < magnitude < HIGHEST:
            raise FedMedError(f"RandAugment: magnitude is {magnitude}; use a number above 0, below {HIGHEST}")
        self.operations, self.magnitude = operations, magnitude
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(self, batch: Tensor) -> Tensor:
        """Return one view of each frame: (B, 3, H, W) float in [0, 1], as the batch."""
        if batch.ndim != 4 or batch.shape[1] != 3:
            raise FedMedError(f"RandAugment: a batch has shape {tuple(batch.shape)}; give (B, 3, H, W)")
        orders = [torch.randperm(len(self.changes), generator=self.generator)[: self.operations] for _ in batch]
        chosen = torch.stack(orders) if orders else torch.empty(0, self.operations)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        views = batch.clone()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs too
            for turn in chosen.T:
                for place, change in enumerate(self.changes):
                    if len(rows := (turn == place).nonzero()[:, 0].to(batch.device)):
                        views[rows] = self._changed(change, views[rows])
        return views.clamp_(0, 1)

    def _changed(self, change: OperationBase, frames: Tensor) -> Tensor:
        magnitude = None
        if change.magnitude_range is not None:
            low, high = (float(bound) for bound in change.magnitude_range)
            magnitude = torch.full((len(frames),), low + self.magnitude / HIGHEST * (high - low))
        return change(frames, params=change.forward_parameters(frames.shape, mag=magnitude))
