"""Pydantic's errors in plain words: key, value, what it must be, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Place = tuple[str | int, ...]
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
    "model_attributes_type": "'key: value' lines",
    "none_required": "empty",
    "literal_error": "{expected}",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "string_pattern_mismatch": "a text that fits {pattern}",
    "string_too_short": "a text of {min_length} characters or more",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of {max_length} at most",
}
LONGEST = 80  # characters of a value in a message


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        text: which key, what is wrong with it, and what to do; no full stop at its end.
        line: of the file, counted from 1; None if unknown.
    """

    text: str
    line: int | None = None


class Contradictions(ValueError):
    """Keys that are right each, but not together.

    Args:
        found: key at which the line is shown, and a sentence that names all keys concerned.
    """

    def __init__(self, found: Sequence[tuple[str, str]]) -> None:
        self.found = list(found)
        super().__init__("; ".join(text for _, text in found))


def findings(error: ValidationError, model: type[BaseModel], values: Any, lines: Mapping[Place, int]) -> list[Finding]:
    """Translate an error of pydantic's.

    Args:
        error: from validating ``values`` with ``model``.
        model: names the keys that there are.
        values: plain values, as they were validated.
        lines: place of a key -> its line.

    Returns:
        A finding for each place, in the order of pydantic.
    """
    wanted: dict[tuple[Place, str], list[str]] = {}  # the branches of a union have a place in common
    for one in error.errors():
        place = _place(one["loc"], values, one["type"] == "missing")
        for where, said, must in _said(one, place, model):
            wanted.setdefault((where, said), []).extend([must] if must else [])
    return [
        Finding(said + (f"; it must be {', or '.join(dict.fromkeys(must))}" if must else ""), _line(place, lines))
        for (place, said), must in wanted.items()
    ]


def _said(one: Mapping[str, Any], place: Place, model: type[BaseModel]) -> Iterator[tuple[Place, str, str]]:
    """Yield place, sentence, and what the value must be."""
    kind, value = one["type"], one["input"]
    error = one.get("ctx", {}).get("error")
    if isinstance(error, Contradictions):
        yield from (((*place, key), text, "") for key, text in error.found)
    elif kind == "missing":
        yield place, f"{_words(place)} is missing", ""
    elif kind == "extra_forbidden":
        yield place, _unknown(place, model), ""
    elif kind == "value_error":
        yield place, f"{_words(place)} is {_short(value)}; {error}" if place else str(error), ""
    else:
        template = MUST_BE.get(kind)
        must = template.format(**one.get("ctx", {})) if template else f"different ({one['msg']})"
        yield place, f"{_words(place)} is {_short(value)}{_hint(kind, value)}", must


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _hint(kind: str, value: Any) -> str:
    """Why a text that looks like a number is none."""
    if isinstance(value, str) and kind in ("float_type", "int_type"):
        try:
            number = float(value)
        except ValueError:
            return ""
        exact = f"{number:.20f}".rstrip("0")
        return f" (YAML takes it for a text; write {exact})" if "e" in value.lower() else " (write it without quotes)"
    return " (write it in quotes)" if kind == "string_type" and isinstance(value, int | float) else ""


def _unknown(place: Place, model: type[BaseModel]) -> str:
    known = sorted(_known(model, place[:-1]))
    near = get_close_matches(str(place[-1]), known, 1)
    meant = f"did you mean '{near[0]}'? " if near else ""
    return f"unknown {_words(place)}; {meant}Known: {', '.join(known)}"


def _known(model: type[BaseModel], place: Place) -> set[str]:
    """Keys of the models that may stand in a place."""
    models = {model}
    for key in (key for key in place if isinstance(key, str)):
        fields = [field for one in models for name, field in one.model_fields.items() if key in (name, field.alias)]
        models = {found for field in fields for found in _models(field.annotation)}
    return {field.alias or name for one in models for name, field in one.model_fields.items()}


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


def _line(place: Place, lines: Mapping[Place, int]) -> int | None:
    """The line of a key, or of what it would belong to."""
    return next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)
