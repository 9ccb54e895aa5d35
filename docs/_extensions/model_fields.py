"""Tables of the keys of a YAML file, made of its pydantic model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markdown_text import one_line, table
from pydantic import BaseModel

Schema = Mapping[str, Any]
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
NAMES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "empty"}


def model_tables(model: type[BaseModel]) -> str:
    """Return, in Markdown, a table of a model's keys, and a section for each model that it holds."""
    schema = model.model_json_schema()
    parts = [_table(schema)]
    for name, held in sorted(schema.get("$defs", {}).items()):
        if held.get("type") == "object":
            parts.append(f"## {name}\n\n{one_line(held.get('description', ''))}\n\n{_table(held)}")
    return "\n\n".join(parts)


def type_text(schema: Schema) -> str:
    """Return what a value must be, in words; a model that is held elsewhere is a link to its section."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(type_text(each) for each in choices if each.get("type") != "null"))
    if "enum" in schema:
        return _or([f"`{value}`" for value in schema["enum"]])
    kind = schema.get("type")
    if kind == "array":
        return f"list of: {type_text(schema.get('items', {}))}"
    if kind == "object":
        return _mapping(schema)
    if schema.get("format") == "path":
        return "path"
    return NAMES.get(str(kind), "any value") + _bounds(schema)


def _bounds(schema: Schema) -> str:
    said = {sign: f"{schema[key]:,.12g}".replace(",", "\u202f") for key, sign in BOUNDS.items() if key in schema}
    if set(said) == {"≥", "≤"}:
        return f", {said['≥']} to {said['≤']}"
    return "".join(f", {sign}\u00a0{number}" for sign, number in said.items())


def _mapping(schema: Schema) -> str:
    keys = schema.get("propertyNames", {}).get("enum")
    values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    held = next((value for value in values if isinstance(value, Mapping)), {})
    return f"{_or([f'`{key}`' for key in keys]) if keys else 'name'} → {type_text(held)}"


def _or(choices: Sequence[str]) -> str:
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def _table(schema: Schema) -> str:
    needed = schema.get("required", ())
    rows = []
    for key, field in schema.get("properties", {}).items():
        default = "*needed*" if key in needed else _default(field)
        rows.append((f"`{key}`", one_line(field.get("description", "")), type_text(field), default))
    return table(("Key", "Meaning", "What it may be", "Default"), rows)


def _default(field: Schema) -> str:
    value = field.get("default")
    return "" if value in (None, "") or "$ref" in field else f"`{json.dumps(value, ensure_ascii=False)}`"
