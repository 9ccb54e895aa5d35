"""Augmentations of patches by the names of Yang et al. 2021, Table 2: a view for the student, one for the teacher."""

import math
import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedmed.errors import FedMedError
from fedmed.seeds import derive_seed

CUTOUT_BOXES = {"1": 1, "2": 5}  # Cutout_1 and Cutout_2: the number names the variant, not how many boxes it has
KNOWN = ("identity", "scale_shift", "gauss_<variance>", "cutout_1", "cutout_2", "fix_<level>")
_NAME = re.compile(r"(identity|scale_shift)|(cutout)_([12])|(gauss|fix)_([^_]+)")


class Augment:
    """Base of augmentations; by itself the identity.

    A patch is looked at twice. ``augment(batch)`` makes what the student sees; ``augment.weak(batch)`` makes what the
    pseudo-label is computed from, by default the patch as it is. Subclasses that draw random numbers take a ``seed``
    and own a generator, so that adding an augmentation changes neither sampling nor other augmentations.

    Batches are plain tensors (B, C, ...) on any device, which are not modified; views have the same shape. Geometry
    must not change, because pseudo-label and student are compared voxel by voxel. MONAI's random transforms change one
    image at a time, drawing from NumPy: noise on a batch of four patches takes six times as long on the CPU.
    """

    def __call__(self, batch: Tensor) -> Tensor:
        return batch

    def weak(self, batch: Tensor) -> Tensor:
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
    """Return what the pseudo-label is computed from; for a plain callable, the batch itself."""
    weak = getattr(augment, "weak", None)
    return batch if weak is None else weak(batch)


class ScaleShift(Augment):
    """The paper's g: ``v' = v (1 + a) + b`` with one a and one b, both from U(-level, level), for each patch.

    Args:
        level: ℓ in [0, 1]. The paper does not state it; 0.1 is the example of the toolkit it used.
        seed: of a and b. They are drawn on the CPU: the same on every device.
        clip: whether what leaves [0, 1] is cut off.

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
    """Gauss_x of the paper's Table 2: ``v' = v + N(0, x)``, drawn for each voxel, clipped to [0, 1].

    Args:
        variance: x, at least 0; the standard deviation is its root. The paper tries 0.001, 0.01 and 0.1.
        seed: of the noise. Each batch's noise is drawn where the batch lies, so a GPU waits for no transfer; its
            numbers differ from the CPU's.

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
    strong view of 6 to 15 % of all patches would be a single grey value, from which nothing can be learnt. Values in
    [0, 1] come to lie in -0.9 to 2.8 at level 0.1.

    Args:
        level: y in [0, 0.5]. The pseudo-label's view has level y, the student's 1 - y; at 0.5 both are equal. The
            paper tries 0.1 and 0.25.
        seed: of both views, which are drawn independently.

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


class Cutout(Augment):
    """Cutout of the paper's Table 2: boxes of voxels of the resampled grid are set to 0, which is air.

    The boxes lie fully inside the patch, uniformly and independently of each other and of other patches; they may
    overlap. All channels of a patch are hidden at the same places. The pseudo-label is kept inside the boxes.

    Args:
        boxes: boxes in a patch; the paper's Cutout_1 has 1, its Cutout_2 has 5.
        size: voxels of a box along each spatial axis; the paper's 20 x 20 x 3 are 16 x 16 x 15 mm on its grid.
        seed: of the places. They are drawn on the CPU: the same on every device.

    Raises:
        FedMedError: no box, or a size below one voxel; when called, a patch with other axes, or smaller than a box.
    """

    def __init__(self, boxes: int = 1, size: Sequence[int] = (20, 20, 3), seed: int = 0) -> None:
        if boxes < 1:
            raise FedMedError(f"Cutout: boxes is {boxes}; use 1 or more")
        plain = isinstance(size, (list, tuple)) and len(size) > 0
        if not plain or any(not isinstance(voxels, int) or voxels < 1 for voxels in size):
            raise FedMedError(f"Cutout: size is {size!r}; give integers of at least 1 voxel, such as [20, 20, 3]")
        self.boxes, self.size = boxes, tuple(size)
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, batch: Tensor) -> Tensor:
        return batch.masked_fill(self._hidden(batch).unsqueeze(1), 0.0)

    def _hidden(self, batch: Tensor) -> Tensor:
        """Voxels of any box: bool, (B, X, Y, ...)."""
        lengths = batch.shape[2:]
        if len(lengths) != len(self.size) or any(n < box for n, box in zip(lengths, self.size, strict=True)):
            raise FedMedError(
                f"Cutout: a box of {list(self.size)} voxels does not fit into a patch of {list(lengths)}; change "
                "'cutout_size' or 'patch_size'"
            )
        inside = torch.ones((), dtype=torch.bool, device=batch.device)
        for axis, (length, box) in enumerate(zip(lengths, self.size, strict=True)):
            starts = torch.randint(length - box + 1, (len(batch), self.boxes, 1), generator=self.generator)
            starts = starts.to(batch.device)
            voxel = torch.arange(length, device=batch.device)
            along = (voxel >= starts) & (voxel < starts + box)  # (B, boxes, length)
            inside = inside & along.view(*along.shape[:2], *[-1 if i == axis else 1 for i in range(len(lengths))])
        return inside.any(dim=1)


def build_augment(
    names: str | Sequence[str], seed: int = 0, shift_level: float = 0.1, cutout_size: Sequence[int] = (20, 20, 3)
) -> Augment:
    """Return one augmentation, or several after each other.

    Args:
        names: one name or a list, in the paper's spelling, capitals or not: ``identity``, ``scale_shift``,
            ``gauss_0.01`` (variance), ``cutout_1`` (one box), ``cutout_2`` (five boxes), ``fix_0.1`` (weak level).
        seed: each augmentation's own generator has a seed derived from this one and from its kind: another augmentation
            beside it, or another number in ``gauss_0.1``, does not change its draws.
        shift_level: of ``scale_shift``.
        cutout_size: voxels of a box.

    Raises:
        FedMedError: no name, an unknown name, or a number outside the augmentation's range.
    """
    listed: list[str] = list(names) if isinstance(names, (list, tuple)) else [str(names)]
    if not listed:
        raise FedMedError("augmentation: the list is empty; write 'identity' to leave the patches as they are")
    makers: dict[str, Callable[[str, int], Augment]] = {
        "identity": lambda number, seed: Augment(),
        "scale_shift": lambda number, seed: ScaleShift(shift_level, seed),
        "gauss": lambda number, seed: GaussianNoise(float(number), seed),
        "cutout": lambda number, seed: Cutout(CUTOUT_BOXES[number], cutout_size, seed),
        "fix": lambda number, seed: FixMatch(float(number), seed),
    }
    kinds = [_parse(name) for name in listed]
    augments = []
    for index, (kind, number) in enumerate(kinds):
        nth = sum(other == kind for other, _ in kinds[:index])
        # The first scale-shift uses the seed itself: so did jobs when there was no other augmentation.
        kind_seed = seed if (kind, nth) == ("scale_shift", 0) else derive_seed(seed, kind, nth)
        augments.append(makers[kind](number, kind_seed))
    return augments[0] if len(augments) == 1 else Compose(augments)


def _parse(name: str) -> tuple[str, str]:
    """Kind and number of a name, ``("gauss", "0.01")``; the number is ``""`` where the name has none."""
    match = _NAME.fullmatch(str(name).lower())
    kind, number = [*filter(None, match.groups()), ""][:2] if match else ("", "")
    try:
        float(number or 0)
    except ValueError:
        kind = ""
    if not kind:
        raise FedMedError(f"augmentation {name!r} is unknown; use one of {', '.join(KNOWN)}, such as gauss_0.01")
    return kind, number
