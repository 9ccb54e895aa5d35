"""From a YAML file to a checked pydantic model, or to one error that lists everything that is wrong with the file.

    class Study(YamlModel):
        rounds: int = Field(ge=1, description="shown by editors")

    study = read_model(path, Study, error=JobError, example=EXAMPLE)

Values are taken as YAML gives them: no text becomes a number, no number a truth value. Lists become tuples and texts
become paths where the model says so.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from fedmed.errors import FedMedError
from fedmed.settings.plain_errors import Contradictions, in_plain_words
from fedmed.settings.yaml_document import Document, Mistake, read_yaml, refusal

__all__ = [
    "BesideTheFile",
    "Contradictions",
    "Document",
    "InWords",
    "YamlModel",
    "check_model",
    "read_model",
    "read_yaml",
]


class YamlModel(BaseModel):
    """Base of what a file may hold: unknown keys are errors, nothing changes afterwards, numbers are finite.

    A key without a value has its default. A check of one key is a ``field_validator`` that raises ``ValueError`` with
    the remedy; one of several keys together is a ``model_validator(mode="after")`` that raises :class:`Contradictions`.
    No ``mode="before"`` or ``"wrap"`` of a model: pydantic takes no list for a tuple and no text for a path after it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


@dataclass(frozen=True)
class InWords:
    """For ``Annotated``, after a pattern: what the text must be, as an error says it."""

    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(handler(source), "in_words", custom_error_message=self.words)


def not_required(*names: str) -> Callable[[dict[str, Any]], None]:
    """For a model's ``json_schema_extra``: keys that FedMed fills in where a file leaves them out."""

    def change(schema: dict[str, Any]) -> None:
        schema["required"] = [name for name in schema.get("required", []) if name not in names]

    return change


def _beside_the_file(path: Path, info: ValidationInfo) -> Path:
    file = (info.context or {}).get("file")
    return path if file is None else (Path(file).parent / path.expanduser()).resolve()


BesideTheFile = Annotated[Path, AfterValidator(_beside_the_file)]  # absolute, or relative to the file's own folder
Model = TypeVar("Model", bound=BaseModel)
ODD = "key {!r} is not a text (YAML takes no, on and the like for truth values); write it in quotes"


def read_model(path: Path, model: type[Model], *, error: type[FedMedError], example: str = "") -> Model:
    """Read a YAML file and check it: :func:`read_yaml` and :func:`check_model`."""
    return check_model(read_yaml(path, error=error, example=example), model, error=error, example=example)


def check_model(
    document: Document,
    model: type[Model],
    *,
    error: type[FedMedError],
    example: str = "",
    context: Mapping[str, Any] | None = None,
) -> Model:
    """Return the model that a document describes.

    Args:
        document: of a file, or ``Document(name, values)`` of values from elsewhere.
        model: what the document must be.
        error: type of the error.
        example: lines of a right file, shown below the mistakes.
        context: for the model's validators, as ``info.context``; it holds the document's path as ``file`` too.

    Raises:
        FedMedError: of the type ``error``, with every mistake: key, line, value and what it must be.
    """
    found = list(document.twice)
    try:  # as JSON: strict about kinds of values, and yet a list can be a tuple and a text a path
        text = json.dumps(_without_empty(document.values, model), default=str)
        found += [Mistake(ODD.format(place[-1]), document.line(place)) for place in _odd_keys(document.values)]
        made = model.model_validate_json(text, strict=True, context={"file": document.path, **(context or {})})
    except ValidationError as problem:
        found += in_plain_words(problem, model, json.loads(text), document)
        raise refusal(error, document.path, found, example) from problem
    except (ValueError, RecursionError) as problem:  # an anchor within itself
        raise refusal(error, document.path, [Mistake(f"cannot be used ({problem})")], example) from problem
    if found:
        raise refusal(error, document.path, found, example)
    return made


def _odd_keys(values: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of keys such as ``no``, which YAML takes for a truth value; as JSON they would silently become others."""
    for key, value in values.items() if isinstance(values, Mapping) else ():
        if key is None or isinstance(key, bool):
            yield *place, key
        yield from _odd_keys(value, (*place, key))


def _without_empty(values: Any, kind: Any) -> Any:
    """Leave out keys of models that have no value."""
    if isinstance(values, Mapping) and isinstance(kind, type) and issubclass(kind, BaseModel):
        kinds = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        given = {key: value for key, value in values.items() if value is not None or key not in kinds}
        return {key: _without_empty(value, kinds.get(key)) for key, value in given.items()}
    for part in get_args(kind):  # of a union, a list or a mapping
        if isinstance(values, list):
            values = [_without_empty(value, part) for value in values]
        elif isinstance(values, Mapping) and get_origin(kind) is dict:
            values = {key: _without_empty(value, part) for key, value in values.items()}
        else:
            values = _without_empty(values, part)
    return values
