"""What a check shows on the hospital's own screen."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.facts import lists, sections, summary
from fedmed.checks.site_check import Silent
from fedmed.checks.site_findings import NOTE, PROBLEM
from fedmed.data.prepare.console import progress
from fedmed.data.prepare.pool import Track

MOST = 40  # findings of a level that are shown; the CSV has all


class Screen(Silent):
    """Progress on stderr."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)

    def track(self) -> Track:
        """A bar over the images."""
        return progress("Reading images")

    @contextmanager
    def doing(self, text: str) -> Iterator[None]:
        """A spinner beside ``text``; a plain line where there is no terminal."""
        if self.console.is_terminal:
            with self.console.status(text):
                yield
        else:
            self.console.print(f"{text} …", highlight=False)
            yield


def print_checked(checked: CheckedSite, csv: Path | None, page: Path) -> None:
    """Print lists, figures, problems and notes, and whether the site may join."""
    console = Console(highlight=False)
    what = f" as {checked.role}" if checked.role else ""
    console.print(f"[bold]Site '{escape(checked.site.site)}'{what}[/bold]  ({checked.site.source})", soft_wrap=True)
    usable = [case for case in checked.images if case.usable]
    rows = checked.inspection.rows(checked.entries, usable) or [("list", "cases"), *lists(checked)]
    table = Table(*rows[0], title_justify="left")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
    for name, facts in sections(checked):
        console.print(f"[bold]{name}[/bold]")
        for key, value in facts:
            console.print(f"  {key:<28} {escape(value)}", soft_wrap=True)
    for level, title, style in ((PROBLEM, "Problems", "bold red"), (NOTE, "Worth a look", "bold yellow")):
        _print_findings(console, checked, level, title, style)
    if csv:
        console.print(f"Every entry: {csv} (keep it here: it names files and patients)", soft_wrap=True)
    console.print(f"To send to the study lead: {page} (no patient information)", soft_wrap=True)
    console.print(f"[bold {'green' if checked.ready else 'red'}]{summary(checked)}[/]")


def _print_findings(console: Console, checked: CheckedSite, level: str, title: str, style: str) -> None:
    found = [finding for finding in checked.findings if finding.level == level]
    if found:
        console.print(f"[{style}]{title}: {len(found)}[/]")
    for finding in found[:MOST]:
        console.print(f"  {finding.area:<11} {escape(finding.text)}", soft_wrap=True)
    if len(found) > MOST:
        console.print(f"  … and {len(found) - MOST} more; the CSV file has them all")
