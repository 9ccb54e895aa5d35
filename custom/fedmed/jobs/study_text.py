"""The text of a study: read it with all its mistakes at once, and change it without losing its comments."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fedmed.errors import JobError
from fedmed.settings.yaml_document import Document, parse_yaml

HINT = "    fedmed study init METHOD  # writes a commented study\n"


def parse_study(text: str, source: str) -> Document:
    """Read the YAML of a study.

    Args:
        text: YAML without aliases, within the limits of :mod:`fedmed.yaml_limits`; it may come from the network.

    Raises:
        JobError: it is not ``key: value`` lines of YAML, or goes beyond a limit; says the line.
    """
    return parse_yaml(text, source, error=JobError, example=HINT, aliases=False)


def changed_text(text: str, values: Mapping[str, Any], source: str = "study.yaml") -> str:
    """Return a study's text with other values of some of its keys; everything else stays as it was, comments too.

    Args:
        values: key -> value; None removes the key's value (``null``). Of a key with dots, such as
            ``privacy.allowed_extras``, all else of the outer key stays.
    """
    document = parse_study(text, source)
    if _root(text).flow_style:  # JSON, say, which has no comments to keep
        whole = dict(document.values)
        for key, value in values.items():
            outer, _, inner = key.partition(".")
            whole[outer] = {**(whole.get(outer) or {}), inner: value} if inner else value
        return dumped(whole)
    for key, value in values.items():
        text = _changed(text, _root(text), key.split("."), value)
    return text


def _changed(text: str, node: yaml.MappingNode, keys: Sequence[str], value: Any) -> str:
    """The text with another value for a key of a block, or for one of a block inside of it."""
    name, column = keys[0], " " * (node.value[0][0].start_mark.column if node.value else 0)
    entry = next(((k, v) for k, v in node.value if k.value == name), None)
    if entry and len(keys) > 1 and isinstance(entry[1], yaml.MappingNode):
        if entry[1].value and not entry[1].flow_style:
            return _changed(text, entry[1], keys[1:], value)
        inner = yaml.safe_load(text[entry[1].start_mark.index : entry[1].end_mark.index]) or {}
        keys, value = keys[:1], {**inner, ".".join(keys[1:]): value}
    for key in reversed(keys[1:]):
        value = {key: value}
    shown = dumped(value, flow=True).removesuffix("...\n").strip()
    if entry:
        return f"{text[: entry[0].end_mark.index]}: {shown}{text[_end(entry[1]) :]}"
    if not column:
        return f"{text.rstrip()}\n{name}: {shown}\n"
    end = _end(node)
    return f"{text[:end].rstrip()}\n{column}{name}: {shown}\n{text[end:].removeprefix(chr(10))}"


def _root(text: str) -> yaml.MappingNode:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read above
    return root


def _end(node: yaml.Node) -> int:
    """End of a value: of a block, that of its last line, for PyYAML counts the comments after it as well."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end


class _Plain(yaml.SafeDumper):
    """Writes a value out each time, where PyYAML would refer to its first place."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dumped(value: Any, flow: bool = False) -> str:
    """YAML of a plain value, in blocks or on a line."""
    text: str = yaml.dump(
        value, Dumper=_Plain, default_flow_style=flow, sort_keys=False, width=10**6, allow_unicode=True
    )
    return text
