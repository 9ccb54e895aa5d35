"""A YAML file with the lines of its keys, and the error that lists what is wrong with it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedmed.errors import FedMedError
from fedmed.settings.plain_errors import Finding, Place


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
        raise refusal(error, path, [Finding(f"not a readable YAML file ({problem})")], example) from problem
    except yaml.YAMLError as problem:
        mark, text = getattr(problem, "problem_mark", None), getattr(problem, "problem", None) or problem
        finding = Finding(f"not a readable YAML file ({text})", mark and mark.line + 1)
        raise refusal(error, path, [finding], example) from problem
    if twice:
        raise refusal(error, path, twice, example)
    if not isinstance(values, dict):
        raise refusal(error, path, [Finding(f"holds {type(values).__name__}, not 'key: value' lines")], example)
    return Document(path, values, lines)


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


def refusal(error: type[FedMedError], path: Path | str, found: list[Finding], example: str = "") -> FedMedError:
    """Return the error that says every finding, in the order of the file, and shows an example."""
    ending = f". Example:\n{example}" if example else ""
    if len(found) == 1:
        line = f", line {found[0].line}" if found[0].line else ""
        return error(f"{path}{line}: {found[0].text}{ending}")
    ordered = sorted(found, key=lambda finding: finding.line or 0)
    text = "".join(f"\n  {f'line {one.line}: ' if one.line else ''}{one.text}" for one in ordered)
    return error(f"{path}: {len(found)} mistakes:{text}{ending and chr(10)}{ending.removeprefix('. ')}")
