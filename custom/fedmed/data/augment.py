"""Changes of a batch of patches that leave its geometry alone (Yang et al. 2021, section 3.2, g)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedmed.errors import FedMedError


class Augment:
    """Base of augmentations; by itself the identity.

    A consistency method looks at one patch twice. ``augment(batch)`` makes what the student sees;
    ``augment.weak(batch)`` makes what the pseudo-label is computed from, by default the patch as it is. A method
    with a weak and a strong view, such as FixMatch, overrides both. Subclasses that draw random numbers take a
    ``seed`` and own a generator, so that adding an augmentation changes neither sampling nor other augmentations.

    Batches are plain tensors (B, C, ...) on any device; they are not modified. Geometry must stay as it is:
    pseudo-label and student are compared voxel by voxel.
    """

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the student's view, same shape."""
        return batch

    def weak(self, batch: Tensor) -> Tensor:
        """Return the pseudo-label's view, same shape."""
        return batch


class Compose(Augment):
    """Several augmentations after each other; the weak views are chained too.

    Args:
        augments: called in this order.
    """

    def __init__(self, augments: Sequence[Callable[[Tensor], Tensor]]) -> None:
        self.augments = tuple(augments)

    def __call__(self, batch: Tensor) -> Tensor:
        for augment in self.augments:
            batch = augment(batch)
        return batch

    def weak(self, batch: Tensor) -> Tensor:
        for augment in self.augments:
            batch = weak_view(augment, batch)
        return batch


class ScaleShift(Augment):
    """The paper's g: ``v' = v (1 + a) + b`` with one a and one b, both from U(-level, level), for each patch.

    Args:
        level: ℓ in [0, 1]. The paper does not state it; 0.1 is the example of the toolkit it used.
        clip: clip to [0, 1], the range of the input, afterwards.
        seed: of a and b. They are drawn on the CPU: the same on every device.

    Raises:
        FedMedError: the level is outside [0, 1].
    """

    def __init__(self, level: float = 0.1, clip: bool = True, seed: int = 0) -> None:
        if not 0 <= level <= 1:
            raise FedMedError(f"ScaleShift: level is {level}; use a number from 0 (no change) to 1, such as 0.1")
        self.level, self.clip = level, clip
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, batch: Tensor) -> Tensor:
        drawn = torch.empty(2, len(batch)).uniform_(-self.level, self.level, generator=self.generator)
        scale, shift = drawn.to(batch).view(2, -1, *[1] * (batch.ndim - 1))
        changed = torch.addcmul(shift, batch, 1 + scale)
        return changed.clamp_(0, 1) if self.clip else changed


def weak_view(augment: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """What the pseudo-label is computed from; for a plain callable, the batch itself."""
    weak = getattr(augment, "weak", None)
    return batch if weak is None else weak(batch)
