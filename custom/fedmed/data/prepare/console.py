"""What a preparation shows in the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedmed.data.prepare.pool import Known, Track
from fedmed.data.prepare.report import list_table, sections
from fedmed.data.prepare.site import Prepared


def progress(text: str) -> Track:
    """Return a ``track`` for :func:`fedmed.data.prepare.pool.run_all` that draws a bar on stderr."""

    def track(cases: Iterator[Known], total: int) -> Iterator[Known]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield from bar.track(cases, total=total, description=text)

    return track


def print_summary(prepared: Prepared, site: str) -> None:
    """Print lists, refusals and notes of CT volumes, and where everything is."""
    cases = prepared.cases
    used = sum(bool(case.lists) for case in cases)
    title = f"site '{site}': {used} of {len(cases)} volumes"
    lists = sections(cases, [str(path) for path in prepared.stray_masks[:20]], limit=20)
    print_site(title, list_table(cases), lists, prepared.data_root, prepared.out, site)


def print_site(
    title: str,
    rows: Sequence[Sequence[str]],
    lists: Mapping[str, Sequence[str]],
    data_root: Path,
    out: Path,
    site: str,
) -> None:
    """Print a table (its heading first), the lists that are not empty, and where everything is."""
    console = Console(highlight=False)
    head, *body = rows
    table = Table(*head, title=title, title_justify="left")
    for row in body:
        table.add_row(*row)
    console.print(table)
    for name, entries in lists.items():
        if entries:
            console.print(f"[bold]{name}[/bold]")
            console.print("\n".join(f"  {escape(entry)}" for entry in entries), soft_wrap=True)
    console.print(f"Images: {data_root}", soft_wrap=True)
    console.print(f"Written: {out} ({site}.yaml, datalist.json, prepare_report.md, .csv)", soft_wrap=True)
