"""Form of a site's fingerprint: the only numbers and words about its images that leave before the first round.

    images       volume, picture or video
    device       cpu or cuda; ``memory``: whole GiB of it
    counts       list of the datalist -> entries, rounded up to a multiple of 5
    measured     images that were looked at, rounded likewise
    size         axis -> low, median, high (10, 50 and 90 % of the images): voxels, or pixels of a picture or frame
    spacing      the same in mm; ``extent``: size times spacing, in mm
    intensity    low, median, high: 0.5, 50 and 99.5 % of an image's voxels, the median over the images
    centre       axis -> where the middle of the brightness lies, from 0 to 1
    grid         of pictures: field -> mean brightness there, 0 to 1, of all images; 4 × 4 fields, named row.column
    orientation  code such as RAS -> share of the images stored so
    values       value of masks -> share of their voxels
    classes      number of one of the study's classes -> share of the labels; ``other_classes``: of all others

Axes of volumes are x (to the right), y (to the front) and z (to the head), whatever the order in which a file has them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

NAME = "fingerprint"  # of the task, of the study's key, and in a site's `privacy.allowed_extras`
FORBIDDEN = f"its own settings do not list '{NAME}' under 'privacy.allowed_extras'"  # why a site sends none
STEP = 5  # counts are multiples of it, so that no exact number of patients leaves
TELLS = (
    "how many images the site has, in steps of 5, and how large, how coarse and how bright they are: medians and "
    "percentiles over at most 50 of them, and of pictures the mean brightness of 4 × 4 fields; shares of labels; "
    "the memory of its device"
)
AXES = {"volume": ("x", "y", "z"), "picture": ("rows", "columns"), "video": ("rows", "columns")}
LISTS = ("training", "validation", "testing", "unlabeled")
THREE = ("low", "median", "high")
GRID = tuple(f"{row}.{column}" for row in range(1, 5) for column in range(1, 5))
CODES = re.compile("(?=.*[LR])(?=.*[AP])(?=.*[SI])[LRAPSI]{3}")
WHOLE = re.compile(r"-?[0-9]{1,5}")
LARGEST, MOST = 1e7, 100  # of a number; of values and classes
Wrong = Callable[[Any], str]  # what is wrong with a value, as the end of a sentence; "" for nothing


def rounded_up(count: int) -> int:
    """A number of images as it may leave: the next multiple of 5; 0 stays 0."""
    return STEP * -(-count // STEP)


def fault(values: Any) -> str:
    """Say what is wrong with a fingerprint, whoever made it; "" for a sound one. Nothing that it holds is shown."""
    if not isinstance(values, Mapping):
        return "it is not a list of names with numbers"
    if any(name not in FORM for name in values):
        return "it has a name that a fingerprint does not have"
    for name, wrong in FORM.items():
        if name in values and (text := wrong(values[name])):
            return f"its '{name}' {text}"
    if lacking := [name for name in ("images", "device", "memory", "counts") if name not in values]:
        return f"it lacks '{lacking[0]}'"
    axes = AXES[values["images"]]
    if "grid" in values and {*values["grid"]} != {*GRID}:
        return "its 'grid' has other fields than 4 rows of 4"
    odd = [name for name in ("size", "spacing", "extent", "centre") if name in values and {*values[name]} != {*axes}]
    return f"its '{odd[0]}' has other axes than {', '.join(axes)}" if odd else ""


def _word(*known: str) -> Wrong:
    return lambda value: "" if isinstance(value, str) and value in known else f"is not one of {', '.join(known)}"


def _number(low: float, high: float) -> Wrong:
    def wrong(value: Any) -> str:
        sound = type(value) in (int, float) and low <= value <= high  # NaN is not
        return "" if sound else f"is not a number of {low:g} to {high:g}"

    return wrong


def _count(value: Any) -> str:
    sound = type(value) is int and 0 <= value <= LARGEST and value % STEP == 0
    return "" if sound else f"is not a multiple of {STEP}"


def _named(known: Callable[[str], object], inner: Wrong) -> Wrong:
    def wrong(values: Any) -> str:
        if not isinstance(values, Mapping) or len(values) > MOST:
            return f"is not a list of at most {MOST} names with numbers"
        if not all(isinstance(name, str) and known(name) for name in values):
            return "has a name that it may not have"
        return next((f"has a part that {text}" for value in values.values() if (text := inner(value))), "")

    return wrong


def _three(value: Any, low: float = 0) -> str:
    if not isinstance(value, Mapping) or {*value} != {*THREE}:
        return f"has other parts than {', '.join(THREE)}"
    return next((text for part in value.values() if (text := _number(low, LARGEST)(part))), "")


_AXIS = {axis for axes in AXES.values() for axis in axes}.__contains__
_SHARE = _number(0, 1)
FORM: Mapping[str, Wrong] = {
    "images": _word(*AXES),
    "device": _word("cpu", "cuda"),
    "memory": _number(0, 1e6),
    "counts": _named(LISTS.__contains__, _count),
    "measured": _count,
    "size": _named(_AXIS, _three),
    "spacing": _named(_AXIS, _three),
    "extent": _named(_AXIS, _three),
    "intensity": lambda value: _three(value, -LARGEST),
    "centre": _named(_AXIS, _SHARE),
    "grid": _named(GRID.__contains__, _SHARE),
    "orientation": _named(CODES.fullmatch, _SHARE),
    "values": _named(WHOLE.fullmatch, _SHARE),
    "classes": _named(WHOLE.fullmatch, _SHARE),
    "other_classes": _SHARE,
}
