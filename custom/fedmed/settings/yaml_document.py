"""A YAML file with the lines of its keys, and the error that lists what is wrong with it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedmed.errors import FedMedError
from fedmed.yaml_limits import LONGEST, Loader, TooLarge, check_limits

Place = tuple[str | int, ...]  # keys and numbers of entries, from the outside in


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong with a file."""

    text: str  # which key, what is wrong with it, and what to do; no full stop at its end
    line: int | None = None  # of the file, counted from 1; None if unknown


@dataclass(frozen=True)
class Document:
    """A YAML file as it was read.

    Attributes:
        path: the file, for messages; also what values are called that come from no file.
        lines: place of a key, such as ``("privacy", "clip_norm")``, -> its line, counted from 1.
        twice: keys that occur twice in one place, of which YAML would silently take the last.
    """

    path: Path | str
    values: Mapping[str, Any]
    lines: Mapping[Place, int] = field(default_factory=dict)
    twice: Sequence[Mistake] = ()

    def line(self, place: Place) -> int | None:
        """The line of a key, or of what it would belong to."""
        return next((self.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self.lines), None)


def read_yaml(path: Path, *, error: type[FedMedError], example: str = "") -> Document:
    """Read a YAML file that must hold ``key: value`` lines, each key once in its place.

    Raises:
        FedMedError: of the type ``error``: it cannot be read, or is not such a file.
    """
    try:
        with Path(path).open(encoding="utf-8") as stream:
            text = stream.read(LONGEST + 1)  # what is longer is refused
    except (OSError, UnicodeDecodeError) as problem:
        raise refusal(error, path, [Mistake(f"not a readable YAML file ({problem})")], example) from problem
    document = parse_yaml(text, path, error=error, example=example)
    if document.twice:
        raise refusal(error, path, document.twice, example)
    return document


def parse_yaml(
    text: str, path: Path | str, *, error: type[FedMedError], example: str = "", aliases: bool = True
) -> Document:
    """As :func:`read_yaml`, of a text; keys that occur twice are left to who checks the values.

    Args:
        text: YAML within the limits of :mod:`fedmed.yaml_limits`.
        aliases: whether it may have some.
    """
    lines: dict[Place, int] = {}
    with suppress(yaml.YAMLError):  # what is no YAML is told below, in more words
        try:
            check_limits(text, aliases)
        except TooLarge as problem:
            place = problem.problem_mark
            mistake = Mistake(str(problem.problem), None if place is None else place.line + 1)
            raise refusal(error, path, [mistake], example) from problem
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        twice = _note_lines(node, (), lines, set())
        values = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as problem:
        mark, said = getattr(problem, "problem_mark", None), getattr(problem, "problem", None) or problem
        mistake = Mistake(f"not a readable YAML file ({said})", mark and mark.line + 1)
        raise refusal(error, path, [mistake], example) from problem
    except (ValueError, RecursionError) as problem:  # a date that there is not, a thousand lists in one another
        raise refusal(error, path, [Mistake(f"not a readable YAML file ({problem})")], example) from problem
    if not isinstance(values, dict):
        what = "is empty" if values is None else f"holds a {type(values).__name__}"
        raise refusal(error, path, [Mistake(f"{what}; it must hold 'key: value' lines")], example)
    return Document(path, values, lines, twice)


def _note_lines(node: yaml.Node | None, place: Place, lines: dict[Place, int], above: set[int]) -> list[Mistake]:
    """Fill in ``lines`` and return keys that occur twice."""
    twice: list[Mistake] = []
    if id(node) in above:
        return twice
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in names and name != "<<":
                first = lines[(*place, name)]
                twice.append(Mistake(f"key '{name}' occurs twice, in line {first} and here; remove one", line))
            names.add(name)
            lines.setdefault((*place, name), line)
            twice += _note_lines(value, (*place, name), lines, above | {id(node)})
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*place, index)] = item.start_mark.line + 1
            twice += _note_lines(item, (*place, index), lines, above | {id(node)})
    return twice


def refusal(error: type[FedMedError], path: Path | str, mistakes: Sequence[Mistake], example: str = "") -> FedMedError:
    """Return the error that says every mistake, in the order of the file, and shows an example."""
    ending = f". Example:\n{example}" if example else ""
    if len(mistakes) == 1:
        line = f", line {mistakes[0].line}" if mistakes[0].line else ""
        return error(f"{path}{line}: {mistakes[0].text}{ending}")
    ordered = sorted(mistakes, key=lambda mistake: mistake.line or 0)
    text = "".join(f"\n  {f'line {one.line}: ' if one.line else ''}{one.text}" for one in ordered)
    return error(f"{path}: {len(mistakes)} mistakes:{text}{ending and chr(10)}{ending.removeprefix('. ')}")
