"""Pydantic's errors in plain words: key, value, what it must be, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fedmed.settings.yaml_document import Document, Mistake, Place

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


class Contradictions(ValueError):
    """Keys that are right each, but not together.

    Args:
        found: key at which the line is shown, and a sentence that names all keys concerned.
    """

    def __init__(self, found: Sequence[tuple[str, str]]) -> None:
        self.found = list(found)
        super().__init__("; ".join(text for _, text in found))


def in_plain_words(error: ValidationError, model: type[BaseModel], values: Any, document: Document) -> list[Mistake]:
    """Translate an error of pydantic's.

    Args:
        error: from validating ``values`` with ``model``.
        model: names the keys that there are.
        values: plain values, as they were validated.
        document: knows their lines.

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
        yield from (((*place, key), text, "") for key, text in error.found)
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
    """Why a text that looks like a number is not one."""
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
        models = {found for field in fields for found in _models(field.annotation)}
    return {field.alias or name: field for one in models for name, field in one.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _place(location: Place, values: Any, missing: bool) -> Place:
    """Where in the values it is; pydantic's location also names branches of unions."""
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
