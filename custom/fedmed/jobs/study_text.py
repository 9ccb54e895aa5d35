"""The text of a study: read it with all its mistakes at once, and change it without losing its comments."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from fedmed.errors import JobError
from fedmed.jobs.study import Named, Resume, Rule, Study, WarmStart

SECTIONS: dict[str, type[BaseModel]] = {"method": Named, "rule": Rule, "warm_start": WarmStart, "resume": Resume}
LIMIT = 1 << 20  # characters; the text may come from the network
Place = tuple[str | int, ...]


def parse_study(text: str, source: str) -> Study:
    """Read a study.

    Args:
        text: YAML.
        source: file name, for messages.

    Raises:
        JobError: every mistake with key, place, value and remedy, a line each.
    """
    root = _compose(text, source)
    lines: dict[Place, int] = {}
    twice: list[Place] = []
    _walk(root, (), lines, twice)
    found = [(place, f"'{_dotted(place)}' is there twice; keep one") for place in twice]
    try:
        study = Study.model_validate(yaml.safe_load(text))
    except ValidationError as error:
        found += [_mistake(dict(one), lines) for one in error.errors()]
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise JobError(f"{source}: not a readable YAML file ({error})") from error
    if found:
        raise mistakes(
            [(lines.get(place), text) for place, text in sorted(found, key=lambda one: lines[one[0]])], source
        )
    return study


def mistakes(found: Iterable[tuple[int | None, str]], source: str) -> JobError:
    """One error for all mistakes: (line or None, what is wrong and what to do)."""
    said = [f"{source}:{line}: {text}" if line else f"{source}: {text}" for line, text in found]
    return JobError(said[0] if len(said) == 1 else f"{len(said)} mistakes in {source}:\n    " + "\n    ".join(said))


def place_of(message: str, text: str, source: str) -> int | None:
    """The line of the first key of a study that a message names in quotes."""
    lines: dict[Place, int] = {}
    _walk(_compose(text, source), (), lines, [])
    for name in re.findall(r"'([a-z_]+)[.'\]]", message):
        if (name,) in lines:
            return lines[(name,)]
    return None


def changed_text(text: str, values: Mapping[str, Any], source: str = "study.yaml") -> str:
    """Return a study's text with other values of some of its keys; everything else stays as it was, comments too.

    Args:
        text: a YAML mapping.
        values: key -> value; None removes the key's value (``null``).
        source: for messages.
    """
    if _compose(text, source).flow_style:  # JSON, say, which has no comments to keep
        return dumped({**yaml.safe_load(text), **values})
    for key, value in values.items():
        root, shown = _compose(text, source), _flow(value)
        spans = [(k, v) for k, v in root.value if k.value == key]
        if not spans:
            text = f"{text.rstrip()}\n{key}: {shown}\n"
            continue
        start, end = spans[0][0].end_mark.index, _end(spans[0][1])
        text = f"{text[:start]}: {shown}{text[end:]}"
    return text


def _end(node: yaml.Node) -> int:
    """Where a value ends: of a block, the end of its last line, for PyYAML counts the comments after it as well."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.index


class _Plain(yaml.SafeDumper):
    """Writes a value out each time, where PyYAML would refer to its first place."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dumped(value: Any, flow: bool | None = False) -> str:
    """YAML of a plain value, in blocks or on a line."""
    return yaml.dump(value, Dumper=_Plain, default_flow_style=flow, sort_keys=False, width=10**6, allow_unicode=True)


def _flow(value: Any) -> str:
    return dumped(value, flow=True).removesuffix("...\n").strip()


def _compose(text: str, source: str) -> yaml.MappingNode:
    try:
        if len(text) > LIMIT or any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise JobError(f"{source}: has more than {LIMIT} characters, or aliases (*name); write values out")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise JobError(f"{source}: not a readable YAML file ({error})") from error
    if not isinstance(root, yaml.MappingNode):
        raise JobError(f"{source}: holds no 'key: value' lines; scripts/package_job.py --init METHOD writes a study")
    return root


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int], twice: list[Place]) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            inner = (*place, name)
            lines[inner] = key.start_mark.line + 1
            if name in seen:
                twice.append(inner)
            seen.add(name)
            _walk(value, inner, lines, twice)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _walk(item, (*place, number), lines, twice)


def _dotted(place: Place) -> str:
    return ".".join(map(str, place))


def _mistake(error: dict[str, Any], lines: Mapping[Place, int]) -> tuple[Place, str]:
    """(place in the file, what is wrong) of one of pydantic's errors."""
    place = _known(error["loc"], lines)
    if error["type"] == "missing":
        place = (*place, error["loc"][-1])
    key = _dotted(place)
    if error["type"] == "missing":
        inside = place[:-1]
        return inside if inside in lines else (), f"'{key}' is missing: {_about(place)}"
    if error["type"] in ("extra_forbidden", "invalid_key") and place:
        known = list(_fields(place[:-1]))
        near = get_close_matches(str(place[-1]), known, 1)
        return place, f"unknown key '{key}'; " + (f"did you mean '{near[0]}'?" if near else f"use {', '.join(known)}")
    said = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    about = f" ({_about(place)})" if _about(place) else ""
    return place, f"'{key}' is {_short(error['input'])}; it {said}{about}"


def _known(loc: Place, lines: Mapping[Place, int]) -> Place:
    """The part of an error's place that the file has: pydantic adds which kind of a value was tried."""
    place: Place = ()
    for part in loc:
        if (*place, part) not in lines and (*place, str(part)) not in lines:
            break
        place = (*place, part if (*place, part) in lines else str(part))
    return place


def _fields(place: Place) -> Iterator[str]:
    model = SECTIONS.get(str(place[0])) if place else Study
    yield from model.model_fields if model else ()


def _about(place: Place) -> str:
    if len(place) == 2 and place[0] in SECTIONS:
        field = SECTIONS[str(place[0])].model_fields.get(str(place[1]))
    else:
        field = Study.model_fields.get(str(place[0])) if place else None
    return (field.description or "") if field else ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
