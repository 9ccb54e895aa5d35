"""Parts of pages that are made of the code: comments in Markdown, which give way to text when the pages are built.

<!-- keys of fedmed.settings.site_file.SiteFile -->
<!-- commands of fedmed.commands.command_line -->
"""

import re
from importlib import import_module
from typing import Any

from command_sections import command_sections
from model_fields import model_tables

COMMENT = re.compile(r"(?m)^<!-- (keys|commands) of ([\w.]+) -->$")


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}


def _fill(app: Any, page: str, source: list[str]) -> None:
    source[0] = COMMENT.sub(lambda match: _text(match[1], match[2]), source[0])


def _text(what: str, name: str) -> str:
    if what == "keys":
        module, _, model = name.rpartition(".")
        return model_tables(getattr(import_module(module), model))
    from typer.main import get_command

    return command_sections(get_command(import_module(name).app), "fedmed")
