"""What people write in an experiment's YAML, checked before any of it is used; all that is wrong is said at once."""

from collections.abc import Mapping
from typing import Any, TypeVar

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


def build_named(base: type[Model], content: Any, where: str, path: str | None = None) -> Model:
    """An object of the class that ``content`` names by ``path: package.module.Class``; its other keys are the fields.

    Args:
        base: what the class must be a kind of.
        content: of the YAML.
        where: what is read, for the message.
        path: class of a content that names none.

    Raises:
        JobError: no class is named or it cannot be imported, it is of another kind, or a field is wrong.
    """
    if not isinstance(content, Mapping):
        raise JobError(f"{where} is {content!r}; write 'path: package.module.Class' and the settings of that class")
    settings = dict(content)
    named = settings.pop(PATH, path)
    if not isinstance(named, str) or "." not in named:
        raise JobError(f"{where}: '{PATH}' is {named!r}; it must name a class, a kind of {base.__name__}")
    try:
        kind = import_named(named)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"{where}: there is no class '{named}' ({error})") from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise JobError(f"{where}: '{named}' is not a kind of {base.__module__}.{base.__name__}")
    return build(kind, settings, where)
