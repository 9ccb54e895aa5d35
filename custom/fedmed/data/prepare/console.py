"""Output of a preparation in the terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedmed.data.prepare.pool import Known, Track
from fedmed.data.prepare.report import Prepared, Rows, shortened
from fedmed.plain_text import in_markup


def progress(text: str) -> Track[Known]:
    """Return a ``track`` for :func:`fedmed.data.prepare.pool.run_all` that draws a bar on stderr."""

    def track(cases: Iterator[Known], total: int) -> Iterator[Known]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield from bar.track(cases, total=total, description=text)

    return track


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
    table = Table(title=title and in_markup(title), title_justify="left")
    for place, heading in enumerate(rows[0]):  # a narrow terminal cuts headings, and never the name of a list
        table.add_column(in_markup(heading), no_wrap=place == 0)
    for row in rows[1:]:
        table.add_row(*map(in_markup, row))
    console.print(table)
