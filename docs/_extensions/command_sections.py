"""Sections of a command line: one for each command of a tree, with its arguments and options."""

import inspect
from collections.abc import Iterator
from typing import Any

from markdown_text import literal, one_line, table

# Options that say nothing of one command.
OF_ALL = {"--help", "--install-completion", "--show-completion"}


def command_sections(command: Any, name: str, level: int = 2) -> str:
    """Return, in Markdown, the sections of a command and of all below it; hidden ones are left out.

    Args:
        command: a command or group of click, or of the copy that Typer brings: ``typer.main.get_command(app)``.
        name: as it is typed.
        level: of the first heading.
    """
    return "\n\n".join(_sections(command, command.context_class(command, info_name=name), level))


def _sections(command: Any, context: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{context.command_path}`"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\f")[0].replace("\b\n", "").split("\n\n")
        yield "\n\n".join(_paragraph(lines, context.command_path) for lines in paragraphs)
    if rows := list(_rows(command, context)):
        yield table(("Argument or option", "Meaning"), rows)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        below = command.get_command(context, name)
        if not below.hidden:
            yield from _sections(below, command.context_class(below, info_name=name, parent=context), level + 1)


def _paragraph(text: str, command: str) -> str:
    """Return a paragraph; one of commands is code."""
    if all(line.startswith(command) for line in text.splitlines()):
        return f"```bash\n{text}\n```"
    return literal(text)


def _rows(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False) or OF_ALL.intersection(parameter.opts):
            continue
        record = parameter.get_help_record(context)  # None for an argument of click, which has no help
        spelling, meaning = record or (parameter.make_metavar(context), "")
        yield f"`{spelling}`", one_line(meaning)
