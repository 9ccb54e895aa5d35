"""Build what a job names by class path, and import nothing that the job may not name."""

import importlib
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from fedmed.aggregation.rule import ServerRule
from fedmed.errors import FedMedError, JobError

RULE_ROOMS = ("fedmed.aggregation", "fedmed.methods")
ALLOWED = "FEDMED_ALLOWED_CLASSES"  # further class paths that the server's own machine allows, separated by commas
_PATH = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+")


def server_allows() -> tuple[str, ...]:
    """Class paths outside FedMed's rooms that this machine's environment lists in ``$FEDMED_ALLOWED_CLASSES``."""
    return tuple(path.strip() for path in os.environ.get(ALLOWED, "").split(",") if path.strip())


def load_class(path: Any, rooms: Collection[str], allowed: Collection[str] = ()) -> type:
    """Return the class that a job names. Nothing is imported for a path that is refused.

    Args:
        path: ``package.module.Class``.
        rooms: packages in which it may be defined; what their modules merely import does not count.
        allowed: further class paths, from this machine's own settings.

    Raises:
        JobError: not a class path, outside the rooms and not allowed, or there is no such class.
    """
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise JobError(f"{_short(path)} is not a class path, such as fedmed.aggregation.weighted_mean.WeightedMean")
    at_home = any(path.startswith(f"{room}.") for room in rooms)
    if not at_home and path not in allowed:
        raise JobError(
            f"a job may not name the class {_short(path)}: it is not below {' or '.join(rooms)}; where it is meant, "
            "the machine that runs it must list it in its own settings"
        )
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise JobError(f"there is no class {_short(path)}: {error}; correct the name or install the package") from error
    if not isinstance(found, type) or (path not in allowed and found.__module__ != module):
        raise JobError(f"{_short(path)} is not a class that is defined there; name the class where it is defined")
    return found


def build(spec: Mapping[str, Any], rooms: Collection[str], allowed: Collection[str] = ()) -> Any:
    """Build an object from ``{path, args}``; arguments of this form are built first, in the same way.

    Raises:
        JobError: the form, a class path or an argument is wrong; names it.
    """
    if not _is_spec(spec) or not isinstance(spec.get("args") or {}, Mapping):
        raise JobError(f"{_short(spec)} describes no object; give a class path and arguments: {{path: …, args: {{…}}}}")
    found = load_class(spec["path"], rooms, allowed)
    given = dict(spec.get("args") or {})
    args = {key: build(value, rooms, allowed) if _is_spec(value) else value for key, value in given.items()}
    try:
        return found(**args)
    except FedMedError:
        raise
    except (TypeError, ValueError) as error:
        raise JobError(f"the arguments of {spec['path']} are wrong: {error}") from error


def load_rule(spec: Mapping[str, Any], allowed: Collection[str] = ()) -> ServerRule:
    """Build the server's rule from ``{path, args}``.

    Args:
        spec: class path below ``fedmed.aggregation`` or ``fedmed.methods``, and plain arguments.
        allowed: further class paths, see :func:`server_allows`.

    Raises:
        JobError: as :func:`build`, or the class is not a rule.
    """
    rule = build(spec, RULE_ROOMS, allowed)
    if not isinstance(rule, ServerRule):
        raise JobError(f"{spec['path']} is not a rule of the server: see ServerRule in fedmed/aggregation/rule.py")
    return rule


def class_path(thing: object) -> str:
    """The class path of an object."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is_spec(value: Any) -> bool:
    return isinstance(value, Mapping) and "path" in value and not set(value) - {"path", "args"}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"'{text if len(text) <= 80 else text[:77] + '...'}'"
