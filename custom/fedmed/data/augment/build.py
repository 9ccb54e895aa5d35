"""Augmentations by the names of the paper's Table 2, as a job writes them."""

import re
from collections.abc import Callable, Sequence

from fedmed.data.augment.base import Augment, Compose
from fedmed.data.augment.intensity import Cutout, FixMatch, GaussianNoise, ScaleShift
from fedmed.errors import FedMedError
from fedmed.seeds import derive_seed

CUTOUT_BOXES = {"1": 1, "2": 5}  # Cutout_1 and Cutout_2: the number names the variant, not how many boxes it has
KNOWN = ("identity", "scale_shift", "gauss_<variance>", "cutout_1", "cutout_2", "fix_<level>")
_NAME = re.compile(r"(identity|scale_shift)|(cutout)_([12])|(gauss|fix)_([^_]+)")


def build_augment(
    names: str | Sequence[str], seed: int = 0, shift_level: float = 0.1, cutout_size: Sequence[int] = (20, 20, 3)
) -> Augment:
    """Return one augmentation, or several after each other.

    Args:
        names: one name or a list of names, in the paper's spelling: ``identity``, ``scale_shift``,
            ``gauss_0.01`` (variance), ``cutout_1`` (one box), ``cutout_2`` (five boxes), ``fix_0.1`` (level of the
            weak view). Capitals do not matter.
        seed: each augmentation draws from its own generator, whose seed is derived from this one and from the
            augmentation's kind. Adding another augmentation, or changing the number in ``gauss_0.1``, does not change
            its draws.
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
        own = seed if (kind, nth) == ("scale_shift", 0) else derive_seed(seed, kind, nth)
        augments.append(makers[kind](number, own))
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
