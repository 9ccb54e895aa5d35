"""Build what is named by class path. What a job names is judged before anything is imported.

This is the one file that imports what a variable names; tests/test_security.py sees to that.
"""

import importlib
import pkgutil
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from fedmed.errors import FedMedError, JobError
from fedmed.moved_classes import hint

T = TypeVar("T")
_PATH = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+")


def check_path(path: Any, rooms: Collection[str], allowed: Collection[str] = ()) -> str:
    """Return a class path that a job may name. Nothing is imported.

    Raises:
        JobError: not a class path, or outside the rooms and not allowed.
    """
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise JobError(f"{_short(path)} is not a class path, such as fedmed.aggregation.weighted_mean.WeightedMean")
    if moved := hint(path):
        raise JobError(moved)
    if not any(path.startswith(f"{room}.") for room in rooms) and path not in allowed:
        raise JobError(
            f"a job may not name the class {_short(path)}: it is not below {' or '.join(rooms)}; where it is meant, "
            "the machine that runs it must list it in its own settings under 'allowed_classes'"
        )
    return path


def load_class(path: Any, rooms: Collection[str], allowed: Collection[str] = ()) -> type:
    """Return the class that a job names. Nothing is imported for a path that is refused.

    Args:
        path: ``package.module.Class``.
        rooms: packages in which it may be defined; what their modules merely import does not count.
        allowed: further class paths, from this machine's own settings.

    Raises:
        JobError: not a class path, outside the rooms and not allowed, or there is no such class.
    """
    check_path(path, rooms, allowed)
    module = path.rpartition(".")[0]
    try:
        kind = import_named(path)
    except (ImportError, AttributeError) as error:
        raise JobError(f"there is no class {_short(path)}: {error}; correct the name or install the package") from error
    if not isinstance(kind, type) or (path not in allowed and kind.__module__ != module):
        raise JobError(f"{_short(path)} is not a class that is defined there; name the class where it is defined")
    return kind


def build(spec: Mapping[str, Any], rooms: Collection[str], allowed: Collection[str] = ()) -> Any:
    """Build an object from ``{path, args}``; arguments of this form are built first, in the same way.

    Raises:
        JobError: the form, a class path or an argument is wrong; names it.
    """
    if not _is_spec(spec) or not isinstance(spec.get("args") or {}, Mapping):
        raise JobError(f"{_short(spec)} describes no object; give a class path and arguments: {{path: …, args: {{…}}}}")
    kind = load_class(spec["path"], rooms, allowed)
    given = dict(spec.get("args") or {})
    args = {key: build(value, rooms, allowed) if _is_spec(value) else value for key, value in given.items()}
    try:
        return kind(**args)
    except FedMedError:
        raise
    except (TypeError, ValueError) as error:
        raise JobError(f"the arguments of {spec['path']} are wrong: {error}") from error


def import_named(path: str) -> Any:
    """Import what FedMed, a bundle or a person at this machine names; never what a job names.

    Raises:
        ImportError, AttributeError, ValueError: it is not there.
    """
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def files_below(package: str) -> list[str]:
    """Names of the files, and folders, of a package of FedMed's; none of them is imported."""
    return [module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]


def classes_in(module: str, base: type[T]) -> list[type[T]]:
    """The classes derived from ``base`` that a module of FedMed's defines."""
    things = vars(importlib.import_module(module)).values()
    kinds = [thing for thing in things if isinstance(thing, type) and thing.__module__ == module]
    return [kind for kind in kinds if issubclass(kind, base) and kind is not base]


def classes_below(package: str, base: type[T]) -> dict[str, type[T]]:
    """Name of each file of a package of FedMed's -> the class derived from ``base`` that it defines."""
    return {name: kind for name in files_below(package) for kind in classes_in(f"{package}.{name}", base)}


def class_path(thing: object) -> str:
    """The class path of an object."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is_spec(value: Any) -> bool:
    return isinstance(value, Mapping) and "path" in value and not set(value) - {"path", "args"}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"'{text if len(text) <= 80 else text[:77] + '...'}'"
