"""Commands of ``fedmed``, run in this process."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from typer.main import get_command

from fedmed.commands.command_line import app, main, run_app


def fedmed(*words: str) -> Callable[[Sequence[object]], int]:
    """Return a function of further words that runs a command and returns its exit code."""
    if words[0] == "research":  # for a person each of these two is a process of its own
        from research.__main__ import app as papers

        return lambda arguments: run_app(papers, "fedmed research", [*words[1:], *arguments])
    if words == ("prepare", "demo"):
        from fedmed_demo.__main__ import app as demo

        return lambda arguments: run_app(demo, "fedmed prepare demo", arguments)
    return lambda arguments: main([*words, *arguments])


def every_command() -> Iterator[tuple[str, Any]]:
    """Yield the words of each command, and the command."""

    def below(words: list[str], one: Any) -> Iterator[tuple[str, Any]]:
        for name, inner in getattr(one, "commands", {}).items():
            yield from below([*words, name], inner)
        if not hasattr(one, "commands"):
            yield " ".join(words), one

    yield from below([], get_command(app))
