"""Plan of a training from the sites' fingerprints: spacing, patch and batch within the memory that they have told.

Rules are nnU-Net's (Isensee et al. 2021, Nature Methods 18, 203-211: its fingerprint, target spacing, patch and batch),
over the sites instead of over the cases of one: a site counts as often as it has images to train on.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.checks.network_memory import NetworkMemory
from fedmed.errors import JobError
from fedmed.messages.fingerprint import AXES as AXES_OF
from fedmed.reports.words import size

Values = Mapping[str, Any]  # a site's fingerprint
Needed = Callable[[Sequence[int], int], float]  # patch, batch -> bytes

AXES = AXES_OF["volume"]
ANISOTROPIC = 3.0  # times as coarse, and as few voxels, as along the other axes: nnU-Net's threshold
FINEST = 0.1  # of the spacings along such an axis, which is then taken
CUBE = 256**3  # voxels of the first patch
STEPS = (8, 16, 32, 64, 128)  # that a network's sizes may have to be multiples of
LEAST_BATCH = 2
PART = 0.05  # of a site's voxels that a batch may be
USED = {"cuda": 0.8, "cpu": 0.5}  # share of the memory that training may take
WEIGHTS = {"low": 0.3, "median": 0.4, "high": 0.3}  # of a site's 10, 50 and 90 % among its images
PIXELS = 32  # that the size of pictures is a multiple of


@dataclass
class Plan:
    """Settings of the bundle, and why each has its value.

    Attributes:
        settings: setting -> value, only those that the bundle lets a study set.
        reasons: the same settings -> a sentence.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, bundle: Bundle, name: str, value: Any, reason: str) -> None:
        """Set a value, within the bundle's range, if the bundle has such a setting and lets studies change it."""
        if name not in bundle.overridable:
            return
        low, high = bundle.ranges.get(name, (-math.inf, math.inf))
        within = [min(max(one, low), high) for one in (value if isinstance(value, list) else [value])]
        self.settings[name] = within if isinstance(value, list) else within[0]
        self.reasons[name] = reason


def make_plan(sites: Mapping[str, Values], bundle: Bundle, memory: float | None = None) -> Plan:
    """Make the plan of a study.

    Args:
        sites: site that trains -> its fingerprint.
        bundle: as the study has it.
        memory: GiB that a step may take, in place of what the sites have told.

    Raises:
        JobError: no site told what the plan is made of, or the smallest device cannot hold one patch.
    """
    if not sites:
        raise JobError(
            "no site that trains has told a fingerprint; each lists it: privacy: {allowed_extras: [fingerprint]}"
        )
    budget, memory_name = _budget(sites, memory)
    network = NetworkMemory(bundle)
    if any("spacing" in values for values in sites.values()):
        return _of_volumes(sites, bundle, network.needed, budget, memory_name)
    if any(values["images"] == "picture" and "size" in values for values in sites.values()):
        return _of_pictures(sites, bundle, network.needed, budget, memory_name)
    raise JobError(
        "the sites have told neither spacings nor sizes of pictures, of which a plan is made: sites tell them of "
        "'privacy.min_cases' images or more, and of videos 'fedmed site check' measures the batch"
    )


def _of_volumes(sites: Mapping[str, Values], bundle: Bundle, needed: Needed, budget: float, memory_name: str) -> Plan:
    plan = Plan()
    spacing, reason = target_spacing(sites)
    plan.add(bundle, "pixdim", spacing, reason)
    if "pixdim" not in plan.settings:  # then it is the bundle's own that images are resampled to
        preset = bundle.parser().get("pixdim")
        spacing = [float(mm) for mm in preset] if isinstance(preset, list) and len(preset) == len(AXES) else spacing
    extent = [pooled(sites, "extent", axis, 0.5) for axis in AXES]
    shape = [max(1, round(mm / voxel)) for mm, voxel in zip(extent, spacing, strict=True)]
    patch, cut = patch_size(shape, spacing, needed, budget)
    shown = f"the median image has {times(shape)} voxels at that spacing"
    whole = f"{times(patch)} is the next size that the network takes"
    why = f"{shown}; {f'cut until {LEAST_BATCH} of them fit into {memory_name}' if cut else whole}"
    plan.add(bundle, "patch_size", patch, why)
    plan.add(bundle, "window_size", patch, "as patch_size, on which the network is trained")
    images = min(_images(values) for values in sites.values())
    batch, limit = batch_size(patch, images * math.prod(shape), needed, budget)
    fits, part = f"what fits into {memory_name}", f"no more than {PART:.0%} of the smallest site's voxels"
    why = fits if limit == "memory" else part
    bytes_needed = size(needed(patch, batch))
    plan.add(bundle, "batch_size", batch, f"{why}, and {LEAST_BATCH} or more; a step takes about {bytes_needed}")
    return plan


def _of_pictures(sites: Mapping[str, Values], bundle: Bundle, needed: Needed, budget: float, memory_name: str) -> Plan:
    plan, parser = Plan(), bundle.parser()
    sides = int(min(pooled(sites, "size", axis, 0.5) for axis in ("rows", "columns")))
    preset, batch = parser.get("image_size"), parser.get("batch_size")
    side = min(preset if isinstance(preset, int) else 256, max(PIXELS, sides // PIXELS * PIXELS))
    plan.add(bundle, "image_size", side, f"the bundle's own, but no larger than the median image ({sides} pixels)")
    side = plan.settings.get("image_size", preset if isinstance(preset, int) else side)
    wanted = fits = batch if isinstance(batch, int) else 32
    while fits > 1 and needed((side, side), fits) > budget:
        fits //= 2
    if needed((side, side), fits) > budget:
        raise _too_small((side, side), needed, memory_name)
    why = "the bundle's own" if fits == wanted else f"halved from {wanted} until it fits"
    plan.add(
        bundle, "batch_size", fits, f"{why}; a step takes about {size(needed((side, side), fits))} of {memory_name}"
    )
    return plan


def target_spacing(sites: Mapping[str, Values]) -> tuple[list[float], str]:
    """Spacing (mm) along x, y and z to which all images are resampled, and why.

    It is the median over all images. Along an axis on which voxels are more than three times as coarse as on the
    others, and three times as few, it is that of the finest tenth of the images, but not finer than on the others.
    """
    spacing = [pooled(sites, "spacing", axis, 0.5) for axis in AXES]
    shape = [pooled(sites, "size", axis, 0.5) for axis in AXES]
    worst = spacing.index(max(spacing))
    others = [place for place in range(len(AXES)) if place != worst]
    medians = "; ".join(f"{site} {times(_medians(values))}" for site, values in sites.items() if "spacing" in values)
    reason = f"the median of all images (mm: {medians})"
    coarse = spacing[worst] > ANISOTROPIC * max(spacing[place] for place in others)
    if coarse and shape[worst] * ANISOTROPIC < min(shape[place] for place in others):
        finest = pooled(sites, "spacing", AXES[worst], FINEST)
        spacing[worst] = max(finest, *(spacing[place] for place in others))
        reason += f"; along {AXES[worst]}, which has few and thick slices, that of the finest tenth"
    return [float(f"{mm:.3g}") for mm in spacing], reason


def patch_size(shape: Sequence[int], spacing: Sequence[float], needed: Needed, budget: float) -> tuple[list[int], bool]:
    """Patch in voxels, and whether memory cut it: as large as image and memory allow, of equal lengths in mm.

    Args:
        shape: of the median image at ``spacing``.
        needed, budget: bytes of a step, and those that it may take.

    Raises:
        JobError: not even the smallest patch fits, or the network takes none.
    """
    edge = (CUBE * math.prod(spacing)) ** (1 / len(spacing))  # mm of a cube with so many voxels
    wanted = [min(most, max(1, round(edge / mm))) for most, mm in zip(shape, spacing, strict=True)]
    steps, patch = _steps(wanted, needed)
    cut = False
    while needed(patch, LEAST_BATCH) > budget:
        smaller = (_less(patch, axis, steps[axis], needed) for axis in _largest_first(patch, shape))
        patch, cut = next(filter(None, smaller), []), True
        if not patch:
            break
    if not patch:
        raise JobError(
            f"no patch that the network takes fits {LEAST_BATCH} times into {size(budget)}; use a smaller network (an "
            "overlay of the bundle) or a larger device, or give --memory"
        )
    return patch, cut


def _steps(wanted: Sequence[int], needed: Needed) -> tuple[list[int], list[int]]:
    """The least numbers that sizes must be multiples of, in a slice and through slices, and the patch in these."""
    for inside, through in sorted(itertools.product(STEPS, repeat=2), key=lambda pair: (pair[0] ** 2 * pair[1], pair)):
        steps = [inside, inside, through]
        patch = [step * math.ceil(length / step) for length, step in zip(wanted, steps, strict=True)]
        if needed(patch, 1) < math.inf:
            return steps, patch
    raise JobError(f"the network takes no patch of about {times(wanted)} voxels; set patch_size yourself")


def _largest_first(patch: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Axes, that first along which the patch is the largest part of the image."""
    return sorted(range(len(patch)), key=lambda axis: -patch[axis] / shape[axis])


def _less(patch: Sequence[int], axis: int, step: int, needed: Needed) -> list[int]:
    """The patch with the next smaller length along an axis that the network takes; [] where there is none."""
    for length in range(patch[axis] - step, 0, -step):
        smaller = [length if place == axis else n for place, n in enumerate(patch)]
        if needed(smaller, 1) < math.inf:
            return smaller
    return []


def batch_size(patch: Sequence[int], voxels: float, needed: Needed, budget: float) -> tuple[int, str]:
    """Patches in a batch, and what limits it: ``memory``, or ``data`` as a batch of 5 % of a site's voxels."""
    of_data = max(LEAST_BATCH, round(PART * voxels / math.prod(patch)))
    batch = LEAST_BATCH
    while batch < of_data and needed(patch, batch + 1) <= budget:
        batch += 1
    return batch, "data" if batch == of_data else "memory"


def pooled(sites: Mapping[str, Values], name: str, axis: str, share: float) -> float:
    """The value that a share of all sites' images does not exceed, from what each site tells of its own.

    Args:
        name: ``spacing``, ``size`` or ``extent``.
        share: 0.5 for the median.
    """
    points = sorted(
        (float(values[name][axis][part]), weight * _images(values))
        for values in sites.values()
        if name in values
        for part, weight in WEIGHTS.items()
    )
    total, passed = sum(weight for _, weight in points), 0.0
    for value, weight in points:
        passed += weight
        if passed >= share * total - 1e-9:
            return value
    raise JobError(f"no site has told its '{name}'")


def _images(values: Values) -> int:
    """Images to train on, with labels or without; at least 1."""
    return max(1, values["counts"].get("training", 0) + values["counts"].get("unlabeled", 0))


def _medians(values: Values) -> list[float]:
    return [values["spacing"][axis]["median"] for axis in AXES]


def _budget(sites: Mapping[str, Values], memory: float | None) -> tuple[float, str]:
    """Bytes that a step may take on the smallest device, and what they are, in words."""
    if memory is not None:
        return memory * 2**30, f"the given {memory:g} GiB"
    usable = {site: USED[values["device"]] * values["memory"] for site, values in sites.items()}
    least = min(usable, key=lambda site: (usable[site], site))
    of = sites[least]
    share, what = USED[of["device"]], "GPU" if of["device"] == "cuda" else "main memory"
    return usable[least] * 2**30, f"{share:.0%} of the {of['memory']:g} GiB of {least}'s {what}"


def _too_small(patch: Sequence[int], needed: Needed, memory_name: str) -> JobError:
    text = f"one image of {times(patch)} takes about {size(needed(patch, 1))}, more than {memory_name}"
    return JobError(f"{text}; use a smaller network or a larger device, or give --memory")


def times(numbers: Sequence[float]) -> str:
    """Numbers in a row: 160 × 160 × 32."""
    return " × ".join(f"{number:g}" for number in numbers)
