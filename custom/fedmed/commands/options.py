"""Common parts of the commands: their declaration and help, and options that several have."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from textwrap import dedent
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedmed.errors import FedMedError

HELP: dict[str, Any] = {"help_option_names": ["--help", "-h"]}
# Of a command that another program reads: all its words go there, --help too.
AS_IT_IS: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
Replace = Annotated[bool, typer.Option("--replace", help="Replace what lies there already.")]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1; default: a GPU if there is one.")]
Trust = Annotated[
    list[str], typer.Option(metavar="DIGEST", help="Let the bundle of this digest run its own code. Repeatable.")
]
Dots = Annotated[int, typer.Option(min=20, max=600, help="Dots per inch.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def group(help_text: str, epilog: str | None = None, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """Commands below one name."""
    return typer.Typer(
        cls=cls,
        help=help_text,
        epilog=epilog,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings=HELP,
    )


def command(
    app: typer.Typer, name: str | None = None, settings: dict[str, Any] = HELP, panel: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the commands; its docstring is the help, in which lines set in are shown as they are."""

    def add(work: Callable[..., Any]) -> Callable[..., Any]:
        text = _shown(inspect.getdoc(work) or "")
        app.command(name, help=text, context_settings=settings, rich_help_panel=panel)(work)
        return work

    return add


def _shown(text: str) -> str:
    """Docstring as typer shows it: brackets are no markup, lines of one paragraph are joined, examples are not."""
    paragraphs = text.replace("[", r"\[").split("\n\n")
    return "\n\n".join(
        dedent(part) if part.startswith((" ", "fedmed ")) else " ".join(part.split("\n")) for part in paragraphs
    )


def split_words(values: list[str]) -> list[str]:
    """Values of an option that may be repeated and may hold several with commas between."""
    return [word for value in values for word in value.split(",") if word]


def ended(code: int) -> None:
    """End the command with this exit code unless it is 0."""
    if code:
        raise typer.Exit(code)


@contextmanager
def stop_says(text: str) -> Iterator[None]:
    """Say ``text`` when a person or a scheduler stops the command meanwhile; its processes end with it."""
    try:
        yield
    except KeyboardInterrupt:
        print(text, file=sys.stderr)
        raise typer.Exit(130) from None


def demand_hospitals() -> None:
    """Find the package of the synthetic hospitals.

    Raises:
        FedMedError: it is not installed.
    """
    if find_spec("fedmed_demo") is None:
        raise FedMedError("the synthetic hospitals are not installed: pip install 'fedmed[demo]'")
