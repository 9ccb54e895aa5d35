"""From a YAML file to a checked pydantic model, or to one error that lists everything that is wrong with the file.

    class Study(YamlModel):
        rounds: int = Field(ge=1, description="shown by editors")

    study = read_model(path, Study, error=JobError, example=EXAMPLE)

Values are taken as YAML gives them: no text becomes a number, no number a truth value. Lists become tuples and texts
become paths where the model says so.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from fedmed.errors import FedMedError
from fedmed.settings.yaml_document import Document as Document  # others import these two from here
from fedmed.settings.yaml_document import Mistake, Place, refusal
from fedmed.settings.yaml_document import read_yaml as read_yaml

Model = TypeVar("Model", bound=BaseModel)
ODD = "key {!r} is not a text (YAML takes no, on and the like for truth values); write it in quotes"
MUST_BE = {
    "string_type": "a text",
    "path_type": "a path",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "'key: value' lines",
    "model_type": "'key: value' lines",
    "in_words": "{in_words}",  # see InWords in yaml_model.py
    "none_required": "empty",
    "literal_error": "{expected}",
    "greater_than": "above {gt:.12g}",
    "greater_than_equal": "at least {ge:.12g}",
    "less_than": "below {lt:.12g}",
    "less_than_equal": "at most {le:.12g}",
    "string_too_short": "a text of {min_length} characters or more",
    "string_too_long": "a text of {max_length} characters at most",
    "too_short": "of {min_length} entries or more",
    "too_long": "of {max_length} entries at most",
}
LONGEST = 80  # characters of a value in a message


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
        example: lines of a right file, shown below the mistakes.
        context: for the model's validators, as ``info.context``; it holds the document's path as ``file`` too.

    Raises:
        FedMedError: of the type ``error``, with every mistake: key, line, value and what it must be.
    """
    mistakes = list(document.twice)
    try:  # as JSON: strict about kinds of values, and yet a list can be a tuple and a text a path
        text = json.dumps(_without_empty(document.values, model), default=str)
        mistakes += [Mistake(ODD.format(place[-1]), document.line(place)) for place in _odd_keys(document.values)]
        made = model.model_validate_json(text, strict=True, context={"file": document.path, **(context or {})})
    except ValidationError as problem:
        mistakes += in_plain_words(problem, model, json.loads(text), document)
        raise refusal(error, document.path, mistakes, example) from problem
    except (ValueError, RecursionError) as problem:  # an anchor within itself
        raise refusal(error, document.path, [Mistake(f"cannot be used ({problem})")], example) from problem
    if mistakes:
        raise refusal(error, document.path, mistakes, example)
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


class Contradictions(ValueError):
    """Keys that are right each, but not together.

    Args:
        mistakes: key at which the line is shown, and a sentence that names all keys concerned.
    """

    def __init__(self, mistakes: Sequence[tuple[str, str]]) -> None:
        self.mistakes = list(mistakes)
        super().__init__("; ".join(text for _, text in mistakes))


def in_plain_words(error: ValidationError, model: type[BaseModel], values: Any, document: Document) -> list[Mistake]:
    """Translate an error of pydantic's.

    Returns:
        A mistake for each place, in the order of pydantic.
    """
    wanted: dict[tuple[Place, str], list[str]] = {}  # the branches of a union have a place in common
    placed = [(_place(one["loc"], values, one["type"] == "missing"), one) for one in error.errors()]
    for place, one in placed:
        if one["type"].endswith("_type") and any(p[: len(place)] == place != p for p, _ in placed):
            continue  # the value is of another branch of a union, and something inside it is wrong
        for where, said, must in _said(one, place, model):
            wanted.setdefault((where, said), []).extend([must] if must else [])
    return [
        Mistake(said + (f"; it must be {', or '.join(dict.fromkeys(must))}" if must else ""), document.line(place))
        for (place, said), must in wanted.items()
    ]


def _said(one: Mapping[str, Any], place: Place, model: type[BaseModel]) -> Iterator[tuple[Place, str, str]]:
    """Yield place, sentence, and what the value must be."""
    kind, value, error = one["type"], one["input"], one.get("ctx", {}).get("error")
    if isinstance(error, Contradictions):
        yield from (((*place, key), text, "") for key, text in error.mistakes)
    elif kind == "missing":
        about = _keys(model, place[:-1])[str(place[-1])].description
        yield place, f"{_words(place)} is missing" + (f": {about.rstrip('.')}" if about else ""), ""
    elif kind == "extra_forbidden":
        yield place, _unknown(place, model), ""
    elif kind == "value_error":
        yield place, f"{_words(place)} is {_short(value)}; {error}" if place else str(error), ""
    else:
        must = MUST_BE.get(kind, "different ({in_words})").format(in_words=one["msg"], **one.get("ctx", {}))
        of_key = one["loc"][-1] == "[key]"  # of a mapping in which not every name may stand
        said = "has a wrong name" if of_key else f"is {_short(value)}{_hint(kind, value)}"
        yield place, f"{_words(place)} {said}", must


def _short(value: Any) -> str:
    return text if len(text := repr(value)) <= LONGEST else f"{text[:LONGEST]}…"


def _hint(kind: str, value: Any) -> str:
    """Say why a text that looks like a number is not one."""
    if isinstance(value, str) and kind in ("float_type", "int_type"):
        with suppress(ArithmeticError):
            exact = f"{Decimal(value):f}"
            text = f"YAML takes it for a text; write {exact}" if "e" in value.lower() else "write it without quotes"
            return f" ({text})"
    return " (write it in quotes)" if kind == "string_type" and isinstance(value, int | float) else ""


def _unknown(place: Place, model: type[BaseModel]) -> str:
    known = sorted(_keys(model, place[:-1]))
    near = get_close_matches(str(place[-1]), known, 1)
    meant = f"did you mean '{near[0]}'? " if near else ""
    return f"unknown {_words(place)}; {meant}Known: {', '.join(known)}"


def _keys(model: type[BaseModel], place: Place) -> dict[str, FieldInfo]:
    """Keys of the models that may stand in a place."""
    models = {model}
    for key in (key for key in place if isinstance(key, str)):
        fields = [field for one in models for name, field in one.model_fields.items() if key in (name, field.alias)]
        models = {kind for field in fields for kind in _models(field.annotation)}
    return {field.alias or name: field for one in models for name, field in one.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _place(location: Place, values: Any, missing: bool) -> Place:
    """Place within the values; pydantic's location also names branches of unions."""
    place: list[str | int] = []
    for index, key in enumerate(location):
        real = isinstance(values, list) if isinstance(key, int) else isinstance(values, Mapping) and key in values
        if real:
            values = values[key]
            place.append(key)
        elif missing and index == len(location) - 1:
            place.append(key)
    return tuple(place)


def _words(place: Place) -> str:
    """``key 'a.b'``, or ``key 'a' of entry 2 of 'b'``."""
    last, entry = max(((i, key) for i, key in enumerate(place) if isinstance(key, int)), default=(-1, 0))
    name = ".".join(map(str, place[last + 1 :]))
    if last < 0:
        return f"key '{name}'"
    above = _words(place[:last]).removeprefix("key ")
    return f"key '{name}' of entry {entry + 1} of {above}" if name else f"entry {entry + 1} of {above}"
