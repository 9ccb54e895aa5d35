"""Augmentations that change every voxel's value."""

import math

import torch
from torch import Tensor

from fedmed.data.augment.base import Augment
from fedmed.errors import FedMedError
from fedmed.seeds import derive_seed


class ScaleShift(Augment):
    """The paper's g: ``v' = v (1 + a) + b`` with one a and one b, both from U(-level, level), for each patch.

    Args:
        level: ℓ in [0, 1]. The paper does not state it; 0.1 is the example of the toolkit it used.
        seed: of a and b. They are drawn on the CPU: the same on every device.
        clip: whether what leaves [0, 1] is cut off.

    Returns:
        The patches, in [0, 1] with ``clip``.

    Raises:
        FedMedError: the level is outside [0, 1].
    """

    def __init__(self, level: float = 0.1, seed: int = 0, clip: bool = True) -> None:
        if not 0 <= level <= 1:
            raise FedMedError(f"ScaleShift: level is {level}; use a number from 0 (no change) to 1, such as 0.1")
        self.level, self.clip = level, clip
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, batch: Tensor) -> Tensor:
        drawn = torch.empty(2, len(batch)).uniform_(-self.level, self.level, generator=self.generator)
        scale, shift = drawn.to(batch).view(2, -1, *[1] * (batch.ndim - 1))
        changed = torch.addcmul(shift, batch, 1 + scale)
        return changed.clamp_(0, 1) if self.clip else changed


class GaussianNoise(Augment):
    """Gauss_x of the paper's Table 2: ``v' = v + N(0, x)``, drawn for each voxel; x is the **variance**.

    Args:
        variance: x, at least 0; the standard deviation is its root. The paper tries 0.001, 0.01 and 0.1.
        seed: of the noise. Each batch's noise is drawn where the batch lies, so a GPU waits for no transfer; its
            numbers differ from the CPU's.

    Returns:
        The patches, clipped to [0, 1].

    Raises:
        FedMedError: the variance is negative, infinite or NaN.
    """

    def __init__(self, variance: float = 0.01, seed: int = 0) -> None:
        if not 0 <= variance < math.inf:
            raise FedMedError(f"GaussianNoise: variance is {variance}; use a number from 0 (no noise), such as 0.01")
        self.variance = variance
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, batch: Tensor) -> Tensor:
        seed = int(torch.randint(2**31, (), generator=self.generator))
        generator = torch.Generator(batch.device).manual_seed(seed)
        noise = torch.randn(batch.shape, generator=generator, device=batch.device, dtype=batch.dtype)
        return noise.mul_(math.sqrt(self.variance)).add_(batch).clamp_(0, 1)


class FixMatch(Augment):
    """Fix_y of the paper's Table 2: two scale-shifts, a weak one for the pseudo-label and a strong one to learn from.

    Neither is clipped: the paper gives v (1 + a) + b without a limit, and its toolkit has none. Clipped to [0, 1], the
    strong view of 6 to 15 % of all patches would be a single grey value, from which nothing can be learnt.

    Args:
        level: y in [0, 0.5]. The pseudo-label's view has level y, the student's 1 - y; at 0.5 both are equal. The
            paper tries 0.1 and 0.25.
        seed: of both views, which are drawn independently.

    Returns:
        The patches; of values in [0, 1], from -0.9 to 2.8 at level 0.1.

    Raises:
        FedMedError: the level is outside [0, 0.5].
    """

    def __init__(self, level: float = 0.1, seed: int = 0) -> None:
        if not 0 <= level <= 0.5:
            raise FedMedError(
                f"FixMatch: level is {level}; use a number from 0 to 0.5, such as 0.1: above 0.5 the pseudo-label's "
                "view would be changed more than the student's"
            )
        self.for_label = ScaleShift(level, derive_seed(seed, "weak"), clip=False)
        self.for_student = ScaleShift(1 - level, derive_seed(seed, "strong"), clip=False)

    def __call__(self, batch: Tensor) -> Tensor:
        return self.for_student(batch)

    def weak(self, batch: Tensor) -> Tensor:
        return self.for_label(batch)
