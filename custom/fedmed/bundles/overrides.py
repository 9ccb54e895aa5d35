"""What a job may change in a bundle: plain values of listed settings, nothing that runs or reads."""

from collections.abc import Collection, Mapping
from typing import Any

from fedmed.errors import OverrideError

# MONAI evaluates strings that start with `$`, resolves `@` references and reads files through `%`.
_FORBIDDEN = ("$", "@", "%")


def check_overrides(overrides: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    """Return a copy of ``overrides`` if every entry is harmless.

    Args:
        overrides: setting id -> number, string, boolean, or list of these.
        allowed: ids that the bundle lists as overridable.

    Raises:
        OverrideError: an id outside the list, or a value that could execute code, read a file or resolve a
            reference; names the key and the reason.
    """
    if not isinstance(overrides, Mapping):
        raise OverrideError(f"overrides must be 'id: value' pairs, got {type(overrides).__name__}")
    for key, value in overrides.items():
        if key not in allowed:
            raise OverrideError(f"override '{key}': a job may not set this. It may set: {', '.join(sorted(allowed))}")
        _check_value(key, value)
    return dict(overrides)


def _check_value(key: str, value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _check_value(key, item)
    elif isinstance(value, Mapping):
        names = [str(name) for name in value if str(name).startswith("_")] or ["…"]
        raise OverrideError(
            f"override '{key}': holds a mapping (key '{names[0]}'); only plain values may come from a job"
        )
    elif isinstance(value, str):
        if value.lstrip().startswith(_FORBIDDEN):
            raise OverrideError(
                f"override '{key}': the text {value!r} starts with one of $ @ %, which would run or read something"
            )
        if "/" in value or "\\" in value or ".." in value:
            raise OverrideError(
                f"override '{key}': the text {value!r} looks like a path; paths belong to the site, not to a job"
            )
    elif not isinstance(value, (bool, int, float, type(None))):
        raise OverrideError(f"override '{key}': {type(value).__name__} is not a number, string, boolean or list")
