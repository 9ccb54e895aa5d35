"""Base of models of an experiment's YAML, checked before any of it is used; all that is wrong is said at once."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from fedmed.class_paths import import_named
from fedmed.errors import JobError
from fedmed.settings.yaml_model import Document, check_model

Model = TypeVar("Model", bound=BaseModel)
PATH = "path"  # key that names a class


def build(kind: type[Model], content: Mapping[str, Any], where: str) -> Model:
    """An object of a model class.

    Raises:
        JobError: names ``where`` and every key that is missing, unknown or has a wrong value, and what it must be.
    """
    return check_model(Document(where, content), kind, error=JobError)


def build_named(base: Callable[..., Model], content: Any, where: str, path: str | None = None) -> Model:
    """An object of the class that ``content`` names by ``path: package.module.Class``; its other keys are the fields.

    Args:
        base: class that it must be a kind of; for mypy a callable, because it may be abstract.
        content, where: as :func:`build`.
        path: class of a content that names none.

    Raises:
        JobError: no class is named or it cannot be imported, it is of another kind, or a field is wrong.
    """
    wanted = cast("type[Model]", base)
    if not isinstance(content, Mapping):
        raise JobError(f"{where} is {content!r}; write 'path: package.module.Class' and the settings of that class")
    settings = dict(content)
    named = settings.pop(PATH, path)
    if not isinstance(named, str) or "." not in named:
        raise JobError(f"{where}: '{PATH}' is {named!r}; it must name a class, a kind of {wanted.__name__}")
    try:
        kind = import_named(named)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"{where}: there is no class '{named}' ({error})") from error
    if not (isinstance(kind, type) and issubclass(kind, wanted)):
        raise JobError(f"{where}: '{named}' is not a kind of {wanted.__module__}.{wanted.__name__}")
    return build(kind, settings, where)
