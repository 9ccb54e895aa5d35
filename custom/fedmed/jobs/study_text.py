"""The text of a study: read it with all its mistakes at once, and change it without losing its comments."""

from collections.abc import Mapping
from typing import Any

import yaml

from fedmed.errors import JobError
from fedmed.settings.yaml_document import Document, parse_yaml

HINT = "    scripts/package_job.py --init METHOD  # writes a commented study\n"


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
        values: key -> value; None removes the key's value (``null``).
    """
    document = parse_study(text, source)
    if _root(text).flow_style:  # JSON, say, which has no comments to keep
        return dumped({**document.values, **values})
    for key, value in values.items():
        shown = dumped(value, flow=True).removesuffix("...\n").strip()
        entry = next(((k, v) for k, v in _root(text).value if k.value == key), None)
        if entry is None:
            text = f"{text.rstrip()}\n{key}: {shown}\n"
        else:
            text = f"{text[: entry[0].end_mark.index]}: {shown}{text[_end(entry[1]) :]}"
    return text


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
