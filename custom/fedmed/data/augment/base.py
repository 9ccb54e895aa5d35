"""What every augmentation is: one view for the student, one for the pseudo-label."""

from collections.abc import Callable, Sequence

from torch import Tensor


class Augment:
    """Base of augmentations; by itself the identity.

    A patch is looked at twice. ``augment(batch)`` makes what the student sees; ``augment.weak(batch)`` makes what the
    pseudo-label is computed from, by default the patch as it is. Subclasses that draw random numbers take a ``seed``
    and own a generator, so that adding an augmentation changes neither sampling nor other augmentations.

    Batches are plain tensors (B, C, ...) on any device; they are not modified. Geometry must not change, because
    pseudo-label and student are compared voxel by voxel. MONAI's random transforms change one image at a time, drawing
    from NumPy: noise on a batch of four patches takes six times as long on the CPU.
    """

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the student's view, same shape."""
        return batch

    def weak(self, batch: Tensor) -> Tensor:
        """Return the pseudo-label's view, same shape."""
        return batch


class Compose(Augment):
    """Several augmentations after each other; the weak views are chained too."""

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


def weak_view(augment: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """What the pseudo-label is computed from; for a plain callable, the batch itself."""
    weak = getattr(augment, "weak", None)
    return batch if weak is None else weak(batch)
