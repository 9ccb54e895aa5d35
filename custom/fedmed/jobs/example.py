"""A commented study to begin with."""

import textwrap
from typing import Any, Literal

import yaml

from fedmed.jobs.study import Study
from fedmed.methods.find_method import find, method_class

HEAD = """\
# A study of FedMed: {title} ({source}).
# Change it to your sites, then run it:  fedmed simulate STUDY.yaml
# On real sites, write the job:  fedmed study package STUDY.yaml jobs/{name}
# A line that is a comment shows a default.
"""
NAME = "my_study"


def example(name: str, size: Literal["small", "paper"] = "small", allowed: tuple[str, ...] = ()) -> str:
    """Text of a study for a method.

    Args:
        name: the method's short name, or its class path.
        size: ``small``, which a laptop ends in minutes, or that of the method's paper.

    Raises:
        JobError: there is no such method.
    """
    path = find(name, allowed)
    kind = method_class(path, allowed)
    method = kind(**(kind.small_args if size == "small" else {}))
    args = method.spec()["args"]
    roles = list(method.roles())
    sites = {f"hospital_{letter}": role for letter, role in zip("abcdef", [roles[0], *roles], strict=False)}
    values: dict[str, Any] = {"name": NAME, "method": {"path": path} | ({"args": args} if args else {}), "sites": sites}
    values |= {"rounds": 50, "fingerprint": True, **kind.example, **(kind.small if size == "small" else {})}
    text = HEAD.format(title=method.title, source=method.source or "ours", name=NAME)
    return text + "".join(_entry(key, field, values) for key, field in Study.model_fields.items() if key != "resume")


def _entry(key: str, field: Any, values: dict[str, Any]) -> str:
    """A key with its comment; one that the example does not set is a comment as a whole."""
    about = textwrap.fill(field.description, 118, initial_indent="# ", subsequent_indent="# ")
    default = field.default.model_dump() if hasattr(field.default, "model_dump") else field.default
    shown = yaml.safe_dump({key: values.get(key, default)}, sort_keys=False)
    if key in values:
        return f"\n{about}\n{shown}"
    flow = yaml.safe_dump(default, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
    return f"\n{about}\n# {key}: {flow}\n"
