"""What a preparation shows in the terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedmed.data.prepare.case import Case
from fedmed.data.prepare.pool import Track
from fedmed.data.prepare.report import list_table, note_counts, refusals
from fedmed.data.prepare.site import Prepared


def progress(text: str) -> Track:
    """Return a ``track`` for :func:`fedmed.data.prepare.pool.inspect_all` that draws a bar on stderr."""

    def track(cases: Iterator[Case], total: int) -> Iterator[Case]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield from bar.track(cases, total=total, description=text)

    return track


def print_summary(prepared: Prepared, site: str) -> None:
    """Print lists, refusals and notes, and what to do next."""
    console = Console(highlight=False)
    cases = prepared.cases
    head, *rows = list_table(cases)
    used = sum(bool(case.lists) for case in cases)
    table = Table(*head, title=f"site '{site}': {used} of {len(cases)} volumes", title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for name, entries in (
        ("Refused", refusals(cases)),
        ("Worth a look", note_counts(cases)),
        ("Masks without an image", [str(path) for path in prepared.stray_masks[:20]]),
    ):
        if entries:
            console.print(f"[bold]{name}[/bold]")
            console.print("\n".join(f"  {escape(entry)}" for entry in entries), soft_wrap=True)
    console.print(f"Images: {prepared.data_root}", soft_wrap=True)
    console.print(f"Written: {prepared.out} ({site}.yaml, datalist.json, prepare_report.md, .csv)", soft_wrap=True)
