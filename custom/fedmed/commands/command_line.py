"""The command ``fedmed``: all its commands, and what an error or a stop becomes."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedmed import __version__
from fedmed.commands import (
    adapt,
    demo,
    export,
    fetch_list,
    infer,
    label,
    prepare,
    provision,
    report,
    research,
    simulate,
    site,
    study,
    view,
)
from fedmed.commands.options import AS_IT_IS, command, group
from fedmed.errors import FedMedError
from fedmed.interrupts import end_workers, endings_as_ctrl_c
from fedmed.plain_text import print_in_any_terminal

EXIT_CODES = "Exit codes: 0 done, 1 done and something is wrong, 2 not done (a mistake in what was given), 130 stopped."


class Ordered(TyperGroup):
    """Shows the commands in the order in which a person needs them; typer shows single ones before groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        first = ["demo", "prepare", "site", "study"]
        return [*first, *(name for name in super().list_commands(ctx) if name not in first)]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fedmed {__version__}")
        raise typer.Exit


def _every_command(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print FedMed's version.")
    ] = False,
) -> None:
    """Read what may stand before the name of a command."""


def _app() -> typer.Typer:
    app = group("Train one model across hospitals whose images may not leave.", EXIT_CODES, Ordered)
    app.callback()(_every_command)
    add = partial(command, app)
    add(panel="Begin")(demo.demo)
    app.add_typer(prepare.app, name="prepare", rich_help_panel="A hospital")
    app.add_typer(site.app, name="site", rich_help_panel="A hospital")
    app.add_typer(study.app, name="study", rich_help_panel="A study")
    add(panel="A study")(simulate.simulate)
    add(panel="A study")(provision.provision)
    add("add-site", panel="A study")(provision.add_site)
    add("fetch-list", panel="A study")(fetch_list.fetch_list)
    for work in (report.report, export.export, adapt.adapt, infer.infer):
        add(panel="A trained model")(work)
    app.add_typer(label.app, name="label", rich_help_panel="A trained model")
    app.add_typer(view.app, name="view", rich_help_panel="A trained model")
    add(settings=AS_IT_IS, panel="The papers")(research.research)
    return app


app = _app()


def main(arguments: Sequence[object] | None = None) -> int:
    """Run a command of ``fedmed`` and return its exit code.

    Args:
        arguments: words after ``fedmed``; by default those of this process.
    """
    return run_app(app, "fedmed", arguments)


def run_app(app: typer.Typer, name: str, arguments: Sequence[object] | None = None) -> int:
    """Run a command and return its exit code; an error of a user, or of a file, is one line on stderr.

    Args:
        name: as a person types it.
        arguments: words after it; by default those of this process.
    """
    print_in_any_terminal()
    words = [str(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    try:
        with endings_as_ctrl_c():
            app(words, prog_name=name)
    except SystemExit as ended:
        if ended.code == 130:
            end_workers()
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}; free space, or choose another place", file=sys.stderr)
        return 2
    return 0
