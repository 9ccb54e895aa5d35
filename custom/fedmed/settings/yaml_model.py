"""From a YAML file to a checked pydantic model, or to one error that lists everything that is wrong with the file.

    class Study(YamlModel):
        rounds: int = Field(ge=1, description="shown by editors")

    study = read_model(path, Study, error=JobError, example=EXAMPLE)

Values are taken as YAML gives them: no text becomes a number, no number a truth value. Lists become tuples and texts
become paths where the model says so.
"""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fedmed.errors import FedMedError
from fedmed.settings.plain_errors import Contradictions, Finding, findings

__all__ = ["Contradictions", "Document", "YamlModel", "check_model", "read_model", "read_yaml"]
Place = tuple[str | int, ...]


class YamlModel(BaseModel):
    """Base of what a file may hold: unknown keys are errors, nothing changes afterwards, numbers are finite.

    A key without a value has its default. A check of one key is a ``field_validator`` that raises ``ValueError`` with
    the remedy; one of several keys together is a ``model_validator(mode="after")`` that raises :class:`Contradictions`.
    No ``mode="before"`` or ``"wrap"`` of a model: pydantic takes no list for a tuple and no text for a path after it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """A YAML file as it was read.

    Attributes:
        path: the file, for messages; also what values are called that come from no file.
        values: its content.
        lines: place of a key, such as ``("privacy", "clip_norm")``, -> its line, counted from 1.
    """

    path: Path | str
    values: Mapping[str, Any]
    lines: Mapping[Place, int] = field(default_factory=dict)


def read_model(
    path: Path,
    model: type[Model],
    *,
    error: type[FedMedError],
    example: str = "",
    context: Mapping[str, Any] | None = None,
) -> Model:
    """Read a YAML file and check it: :func:`read_yaml` and :func:`check_model`."""
    return check_model(
        read_yaml(path, error=error, example=example), model, error=error, example=example, context=context
    )


def read_yaml(path: Path, *, error: type[FedMedError], example: str = "") -> Document:
    """Read a YAML file that must hold ``key: value`` lines.

    Raises:
        FedMedError: of the type ``error``: not readable, no mapping, or a key that occurs twice in one place, of which
            YAML would silently take the last.
    """
    try:
        loader = yaml.SafeLoader(Path(path).read_text(encoding="utf-8"))
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        twice = _note_lines(node, (), lines, set())
        values = None if node is None else loader.construct_document(node)
    except (OSError, UnicodeDecodeError, ValueError) as problem:
        raise _error(error, path, [Finding(f"not a readable YAML file ({problem})")], example) from problem
    except yaml.YAMLError as problem:
        mark, text = getattr(problem, "problem_mark", None), getattr(problem, "problem", None) or problem
        finding = Finding(f"not a readable YAML file ({text})", mark and mark.line + 1)
        raise _error(error, path, [finding], example) from problem
    if twice:
        raise _error(error, path, twice, example)
    if not isinstance(values, dict):
        raise _error(error, path, [Finding(f"holds {type(values).__name__}, not 'key: value' lines")], example)
    return Document(path, values, lines)


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
        document: from :func:`read_yaml`, or ``Document(name, values)`` of values from elsewhere.
        model: what the document must be.
        error: type of the error.
        example: lines of a right file, shown below the findings.
        context: for the model's validators, as ``info.context``.

    Raises:
        FedMedError: of the type ``error``, with every finding: key, line, value and what it must be.
    """
    try:  # as JSON: strict about kinds of values, and yet a list can be a tuple and a text a path
        text = json.dumps(_without_empty(document.values, model), default=str)
        return model.model_validate_json(text, strict=True, context=dict(context or {}))
    except ValidationError as problem:
        found = findings(problem, model, json.loads(text), document.lines)
        raise _error(error, document.path, found, example) from problem
    except (ValueError, RecursionError) as problem:  # an anchor within itself
        raise _error(error, document.path, [Finding(f"cannot be used ({problem})")], example) from problem


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


def _note_lines(node: yaml.Node | None, place: Place, lines: dict[Place, int], above: set[int]) -> list[Finding]:
    """Fill in ``lines`` and return keys that occur twice."""
    twice: list[Finding] = []
    if id(node) in above:
        return twice
    if isinstance(node, yaml.MappingNode):
        own: set[Hashable] = set()
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in own and name != "<<":
                first = lines[(*place, name)]
                twice.append(Finding(f"key '{name}' occurs twice, in line {first} and here; remove one", line))
            own.add(name)
            lines.setdefault((*place, name), line)
            twice += _note_lines(value, (*place, name), lines, above | {id(node)})
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*place, index)] = item.start_mark.line + 1
            twice += _note_lines(item, (*place, index), lines, above | {id(node)})
    return twice


def _error(error: type[FedMedError], path: Path | str, found: list[Finding], example: str) -> FedMedError:
    ending = f". Example:\n{example}" if example else ""
    if len(found) == 1:
        line = f", line {found[0].line}" if found[0].line else ""
        return error(f"{path}{line}: {found[0].text}{ending}")
    ordered = sorted(found, key=lambda finding: finding.line or 0)
    text = "".join(f"\n  {f'line {one.line}: ' if one.line else ''}{one.text}" for one in ordered)
    return error(f"{path}: {len(found)} mistakes:{text}{ending and chr(10)}{ending.removeprefix('. ')}")
