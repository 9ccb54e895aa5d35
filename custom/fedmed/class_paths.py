"""Classes that a job names by path: which may be named, and how they are found."""

import importlib
import re
from collections.abc import Collection
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from fedmed.errors import JobError

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
ALLOW = "'allowed_classes' in the settings of every site, and in the server's fedmed_server.yaml"


def check_path(path: Any, room: str, allowed: Collection[str] = (), what: str = "class") -> str:
    """Return a class path if a job may name it. Nothing is imported.

    Args:
        path: from the job.
        room: package of FedMed whose classes every job may name, such as ``fedmed.methods``.
        allowed: further class paths that this machine's own settings list.
        what: how an error calls the class.

    Raises:
        JobError: it is not the path of a class, or one of another room that is not listed.
    """
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise JobError(f"{what} {path!r} is not a class path; write it as {room}.module.ClassName")
    if not path.startswith(f"{room}.") and path not in allowed:
        raise JobError(
            f"{what} '{path}' may not be named by a job: it is not below {room}. Whoever trusts its code lists it "
            f"under {ALLOW}"
        )
    return path


def load_class(path: Any, base: type, room: str, allowed: Collection[str] = (), what: str = "class") -> type:
    """Return the class of a path that a job names.

    Args:
        path, room, allowed, what: as :func:`check_path`, which comes first.
        base: what the class must be derived from.

    Raises:
        JobError: it may not be named, cannot be imported, or is not a ``base``.
    """
    module, _, name = check_path(path, room, allowed, what).rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise JobError(f"{what} '{path}' is not installed here ({error}); correct the path, or install it") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise JobError(f"{what} '{path}' is not a {base.__name__}; correct the path")
    return found


def make(kind: type, path: str, args: Any, what: str = "class") -> Any:
    """Return an object of a class with plain arguments from a job.

    Raises:
        JobError: an argument that the class does not have, with the nearest that it has, or that it refuses.
    """
    if not isinstance(args, dict) or not all(isinstance(name, str) for name in args):
        raise JobError(f"arguments of {what} '{path}' are {args!r}; write 'name: value' lines")
    known = [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else None
    if known is not None and (unknown := sorted(set(args) - set(known))):
        near = get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; it has: {', '.join(known) or 'none'}"
        raise JobError(f"{what} '{path}' has no argument '{unknown[0]}'{hint}")
    try:
        return kind(**args)
    except TypeError as error:
        raise JobError(f"arguments of {what} '{path}' are wrong: {error}") from error
