"""From a method's class path to its object, and from a run or a study to its method."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from fedmed.class_paths import classes_below, load_class
from fedmed.errors import JobError
from fedmed.methods.method import Method

ROOM = "fedmed.methods"


def load_method(spec: Any, allowed: Collection[str] = ()) -> Method:
    """Make the method that a study names.

    Args:
        spec: ``path`` and ``args``.
        allowed: class paths outside ``fedmed.methods`` that this machine's own settings list.

    Raises:
        JobError: the class may not be named by a job, which is found out before anything is imported, is not there or
            not a method, or does not take the arguments.
    """
    if not isinstance(spec, Mapping) or "path" not in spec or set(spec) - {"path", "args"}:
        raise JobError(f"'method' is {spec!r}; it needs 'path', a class path below {ROOM}, and may have 'args'")
    kind, args = method_class(spec["path"], allowed), spec.get("args") or {}
    known = [field.name for field in fields(kind) if field.init]
    if not isinstance(args, Mapping):
        raise JobError(f"arguments of method '{spec['path']}' are {args!r}; write 'name: value' lines")
    if unknown := sorted(str(name) for name in set(args) - set(known)):
        near = get_close_matches(unknown[0], known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(known) or 'none'}"
        raise JobError(f"method '{spec['path']}' has no argument '{unknown[0]}'; {hint}")
    return kind(**args)


def method_class(path: Any, allowed: Collection[str] = ()) -> type[Method]:
    """Return a method's class.

    Raises:
        JobError: it may not be named by a job, is not there, or is not a method.
    """
    kind = load_class(path, (ROOM,), allowed)
    if not issubclass(kind, Method):
        raise JobError(f"'{path}' is not a method: derive it from fedmed.methods.method.Method")
    return kind


def method_of_run(facts: Mapping[str, Any], allowed: Collection[str] = ()) -> Method:
    """The method of a run, from its ``run.json``; the base, which declares nothing, where it is not recorded.

    Raises:
        JobError: as :func:`load_method`.
    """
    controller = (facts.get("config") or {}).get("controller") or {}
    spec = controller.get("method")
    return Method() if spec is None else load_method(spec, allowed)


def installed() -> dict[str, type[Method]]:
    """Short name, which is the module's -> class of every method of FedMed."""
    return classes_below(ROOM, Method)


def find(name: str, allowed: Collection[str] = ()) -> str:
    """Return a method's class path from its short name or class path.

    Raises:
        JobError: there is no such method.
    """
    known = installed()
    if name in known:
        return f"{known[name].__module__}.{known[name].__name__}"
    if "." not in name:
        raise JobError(f"method '{name}' is unknown; there are {', '.join(known)}, and class paths")
    method_class(name, allowed)
    return name
