"""Output of a preparation in the terminal, and the options that all preparations have."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedmed.data.prepare.pool import Known, Track
from fedmed.data.prepare.report import Prepared, Rows, shortened
from fedmed.errors import DataError
from fedmed.files import fedmed_home, private_files
from fedmed.interrupts import end_workers, endings_as_ctrl_c
from fedmed.plain_text import in_markup
from fedmed.site_names import name_fault

SUFFIXES = ("--mask-suffix", "--image-suffix")  # whose values may begin with "-"


def progress(text: str) -> Track[Known]:
    """Return a ``track`` for :func:`fedmed.data.prepare.pool.run_all` that draws a bar on stderr."""

    def track(cases: Iterator[Known], total: int) -> Iterator[Known]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield from bar.track(cases, total=total, description=text)

    return track


def add_options(parser: argparse.ArgumentParser, what: str, example: str) -> None:
    """Add what every preparation of a folder of ``what`` asks; ``example`` is a pattern that finds a patient."""
    add = parser.add_argument
    add("folder", type=Path, help=f"folder of the {what}, searched at any depth")
    add("--out", type=Path, metavar="SITE_DIR", help="folder to write (default: $FEDMED_HOME/sites/SITE)")
    add("--site", "--name", dest="site", required=True, help="the site's name in the federation")
    add("--split", type=float, nargs=3, default=(0.6, 0.2, 0.2), metavar=("TRAIN", "VAL", "TEST"))
    add("--patient-pattern", metavar="REGEX", help=f"finds the patient in the relative path, for example '{example}'")
    add("--own-patients", action="store_true", help="take each file as another patient, whatever the names look like")
    add("--seed", type=int, default=0, help="of the split (default 0)")
    add("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes that read images")
    add("--copy", action="store_true", help="link or copy the files into SITE_DIR instead of pointing at them")


def parsed_options(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of a command line; without ``--out`` that is the site's place in FedMed's own folder.

    The ending of a name may begin with ``-``, as in ``--mask-suffix -msk``.
    """
    options = parser.parse_args(_with_suffixes(sys.argv[1:] if arguments is None else arguments))
    if fault := name_fault(options.site):
        parser.error(f"--site {fault}")
    options.out = options.out or fedmed_home() / "sites" / options.site
    return options


def _with_suffixes(arguments: Sequence[str]) -> list[str]:
    """``--mask-suffix -msk`` as ``--mask-suffix=-msk``: argparse takes the second word for an option of its own."""
    joined: list[str] = []
    for word in map(str, arguments):
        if joined and joined[-1] in SUFFIXES and word.startswith("-") and not word.startswith("--"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def run_command(name: str, work: Callable[[], None]) -> int:
    """Do the work of a command and return its exit code; errors are printed after the command's name."""
    try:
        with private_files(), endings_as_ctrl_c():
            work()
    except DataError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        end_workers()
        print(f"{name}: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


def print_site(prepared: Prepared, site: str) -> None:
    """Print lists, refusals and notes, and where everything is."""
    console = Console(highlight=False)
    used = sum(bool(case.lists) for case in prepared.cases)
    title = f"site '{site}': {used} of {len(prepared.cases)} {prepared.what}"
    for text in prepared.first:
        console.print(f"[bold yellow]{in_markup(text)}[/bold yellow]", soft_wrap=True)
    print_table(console, prepared.rows, title)
    for name, entries in prepared.sections.items():
        if entries:
            console.print(f"[bold]{name}[/bold]")
            console.print("\n".join(f"  {in_markup(entry)}" for entry in shortened(entries, 20)), soft_wrap=True)
    console.print(f"Data: {in_markup(prepared.data_root)}", soft_wrap=True)
    console.print(
        f"Written: {in_markup(prepared.out)} ({in_markup(site)}.yaml, datalist.json, prepare_report.md, .csv)",
        soft_wrap=True,
    )


def print_table(console: Console, rows: Rows, title: str | None = None) -> None:
    """Print a table whose heading is the first row."""
    table = Table(*map(in_markup, rows[0]), title=title and in_markup(title), title_justify="left")
    for row in rows[1:]:
        table.add_row(*map(in_markup, row))
    console.print(table)
