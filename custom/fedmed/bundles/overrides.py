"""What a job may change in a bundle: plain values of listed settings, nothing that runs code or reads files."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedmed.errors import OverrideError

# MONAI evaluates strings that start with `$`, resolves `@` references and reads files through `%`.
_FORBIDDEN = ("$", "@", "%")
# It also rewrites `#`, `@::` and `%::` anywhere in a text, so a text may hold only the characters of a plain name.
_TEXT = re.compile(r"[A-Za-z0-9 _.,+-]*")
_SEPARATOR = re.compile(r"::|#")
MAX_TEXT = 100  # characters
MAX_ITEMS = 100  # of a list, its inner lists included
MAX_DEPTH = 3  # of lists in lists
_MAX_INT = 2**53  # up to it, JSON readers keep every integer exactly


def check_overrides(overrides: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    """Return a copy of ``overrides`` if every entry is harmless.

    MONAI's parser takes what is returned as the plain values that they look like: it evaluates, resolves, reads and
    rewrites nothing in them.

    Args:
        overrides: setting id -> finite number, short plain text (letters, digits, space, ``_ . , + -``), boolean, null,
            or list of these, up to three deep.
        allowed: ids that the bundle lists as overridable. An id with a part that starts with ``_`` (``_target_``) would
            choose what code runs, and is refused even if it is listed.

    Raises:
        OverrideError: an id outside the list, or a value that could execute code, read a file or resolve a
            reference; names the key and the reason.
    """
    if not isinstance(overrides, Mapping):
        raise OverrideError(f"overrides must be 'id: value' pairs, got {type(overrides).__name__}")
    if isinstance(allowed, str):
        raise OverrideError(f"'overridable' must be a list of ids; the bundle's federation.yaml has {_short(allowed)}")
    known = {id for id in allowed if isinstance(id, str) and not _chooses_code(id)}
    for key in overrides:
        if key not in known:
            listed = ", ".join(sorted(known))
            raise OverrideError(f"override '{_short(key, str)}': a job may not set this. It may set: {listed}")
        _check_size(key, overrides[key])
    return {key: _plain(key, value) for key, value in overrides.items()}


def check_ranges(overrides: Mapping[str, Any], ranges: Mapping[str, Any]) -> None:
    """Refuse numbers that no training can use, such as 0 for the size of a voxel or a patch of a million.

    Args:
        overrides: as :func:`check_overrides` returns them.
        ranges: id -> lowest and highest number, both allowed. A list's numbers each count. Where both ends are whole
            numbers, so must these be. An id that is not there has no range.

    Raises:
        OverrideError: a number is outside, or not whole; names the key and the range.
    """
    for key, value in overrides.items():
        if (ends := ranges.get(key)) is None:
            continue
        low, high = ends
        whole = isinstance(low, int) and isinstance(high, int)
        for number in _numbers(value):
            if not low <= number <= high or (whole and number != int(number)):
                kind = "a whole number " if whole else ""
                raise OverrideError(f"override '{key}': {_number(number)} must be {kind}from {low:g} to {high:g}")


def wrong_range(ends: Any) -> bool:
    """Whether something is not two finite numbers, the lower one first."""
    return not (
        isinstance(ends, list)
        and len(ends) == 2
        and all(type(end) in (int, float) and math.isfinite(end) for end in ends)
        and ends[0] <= ends[1]
    )


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def _chooses_code(id: str) -> bool:
    return any(not part or part.startswith("_") for part in _SEPARATOR.split(id))


def _check_size(key: str, value: Any) -> None:
    """Checked first, and level by level: recursion into a thousand nested lists would exhaust the stack."""
    level, items = [value], 0
    for _ in range(MAX_DEPTH):
        level = [item for each in level if isinstance(each, list) for item in each]
        items += len(level)
    if items > MAX_ITEMS or any(isinstance(item, list) for item in level):
        raise OverrideError(
            f"override '{key}': a list of more than {MAX_ITEMS} items, or more than {MAX_DEPTH} lists deep; no setting "
            "needs that"
        )


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(key, item) for item in value]
    if isinstance(value, Mapping):
        names = [_short(name, str) for name in value if str(name).startswith("_")] or ["…"]
        raise OverrideError(
            f"override '{key}': holds a mapping (key '{names[0]}'); only plain values may come from a job"
        )
    if isinstance(value, str):
        _check_text(key, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > _MAX_INT:
            raise OverrideError(f"override '{key}': {_number(value)} is not a number that a setting can have")
    elif not isinstance(value, (bool, type(None))):
        raise OverrideError(f"override '{key}': {type(value).__name__} is not a number, string, boolean or list")
    return value


def _check_text(key: str, value: str) -> None:
    if value.lstrip().startswith(_FORBIDDEN):
        raise OverrideError(
            f"override '{key}': the text {_short(value)} starts with one of $ @ %, which would run or read something"
        )
    if "/" in value or "\\" in value or ".." in value:
        raise OverrideError(
            f"override '{key}': the text {_short(value)} looks like a path; paths belong to the site, not to a job"
        )
    if len(value) > MAX_TEXT or not _TEXT.fullmatch(value):
        raise OverrideError(
            f"override '{key}': the text {_short(value)} is not a plain name: use at most {MAX_TEXT} letters, "
            "digits, spaces and _ . , + -"
        )


def _short(value: Any, show: Any = ascii) -> str:
    """A value in an error message: ASCII where it is quoted, and never longer than a line."""
    text = show(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) > _MAX_INT:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)
