"""Output of a check for the hospital, where it stays: it names files and patients."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedmed.checks.bins import rounded, shown, summarise_classes
from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.facts import head, lists, sections, summary
from fedmed.checks.site_check import Silent
from fedmed.checks.site_findings import NOTE, PROBLEM, SiteFinding, count_kinds, problems
from fedmed.data.prepare.console import progress
from fedmed.data.prepare.pool import Track
from fedmed.data.prepare.report import table
from fedmed.files import fedmed_home
from fedmed.plain_text import in_markup
from fedmed.reports.sheet import fill_template, write_output

MOST = 40  # findings of a level that are shown; the CSV has all
COLUMNS = (
    *("list", "entry", "image", "mask", "class", "view", "patient", "status", "what"),
    *("voxels", "spacing_mm", "hu_min", "hu_mean", "hu_max", "mask_ml"),
)


def default_csv(site: str) -> Path:
    """``$FEDMED_HOME/checks/<site>.csv``: a private place, where nobody takes it for the page to send."""
    return fedmed_home() / "checks" / f"{Path(site).name}.csv"


def default_page(site: str) -> Path:
    """``$FEDMED_HOME/to_send/check_<site>.html``: apart from what must stay at the hospital."""
    return fedmed_home() / "to_send" / f"check_{Path(site).name}.html"


def write_csv(checked: CheckedSite, path: Path) -> Path:
    """Write one line an entry, readable by the owner only; FedMedError: the file cannot be written."""
    return write_output(path, table(COLUMNS, _rows(checked)), "--csv")  # a temporary file has mode 0600 and keeps it


def _rows(checked: CheckedSite) -> Iterator[dict[str, object]]:
    by_place: dict[tuple[str, int | None], list[SiteFinding]] = {}
    for finding in checked.findings:
        for place in ((finding.list, finding.entry), *finding.also) if finding.list else ():
            by_place.setdefault(place, []).append(finding)
    for entry, case in checked.cases.items():
        yield {
            **_status(entry.list, entry.number, by_place.pop((entry.list, entry.number), [])),
            **{"image": entry.image, "mask": entry.mask, "class": entry.label, "patient": entry.patient},
            "view": getattr(case, "view", None),
            "voxels": "x".join(map(str, case.shape)),
            "spacing_mm": "x".join(f"{size:g}" for size in case.spacing),
            **{name: getattr(case, name) for name in ("hu_min", "hu_mean", "hu_max")},
            "mask_ml": case.mask_ml if entry.mask else None,
        }
    for (key, number), findings in by_place.items():  # entries that could not be opened at all
        yield _status(key, number, findings)


def _status(key: str, number: int | None, findings: list[SiteFinding]) -> dict[str, object]:
    level = PROBLEM if problems(findings) else NOTE if findings else "fine"
    return {"list": key, "entry": number, "status": level, "what": " | ".join(f.text for f in findings)}


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


def as_values(checked: CheckedSite, csv: Path | None, page: Path) -> dict[str, object]:
    """Plain values of a check for a program at the hospital; texts name files and patients, so they stay here."""
    return {
        "site": checked.site.site,
        "role": checked.role,
        "ready": checked.ready,
        "summary": summary(checked),
        "lists": dict(checked.counts),
        "findings": [{"level": one.level, "area": one.area, "text": one.text} for one in checked.findings],
        "left_out": list(checked.left_out),
        "entries": csv and str(csv),
        "page": str(page),
    }


def print_checked(checked: CheckedSite, csv: Path | None, page: Path) -> None:
    """Print lists, figures, problems and notes, and whether the site may join."""
    console = Console(highlight=False)
    what = f" as {checked.role}" if checked.role else ""
    console.print(
        f"[bold]Site '{in_markup(checked.site.site)}'{what}[/bold]  ({in_markup(checked.site.source)})", soft_wrap=True
    )
    for name, text in checked.site.words.items():  # here alone: no word leaves the hospital
        console.print(f"  word '{name}': {in_markup(text)}")
    usable = [case for case in checked.images if case.usable]
    rows = checked.inspection.rows(checked.entries, usable) or [("list", "cases"), *lists(checked)]
    table = Table(*map(in_markup, rows[0]), title_justify="left")
    for row in rows[1:]:
        table.add_row(*map(in_markup, row))
    console.print(table)
    if (reads := checked.trains_on).labelled or reads.unlabelled:
        console.print(f"Trains on {in_markup(reads.words)}", soft_wrap=True)  # here alone: it counts patients
    for name, facts in sections(checked):
        console.print(f"[bold]{in_markup(name)}[/bold]")
        for key, value in facts:
            console.print(f"  {key:<28} {in_markup(value)}", soft_wrap=True)
    for level, title, style in ((PROBLEM, "Problems", "bold red"), (NOTE, "Worth a look", "bold yellow")):
        _print_findings(console, checked, level, title, style)
    if csv:
        console.print(f"Every entry: {in_markup(csv)} (keep it here: it names files and patients)", soft_wrap=True)
    console.print(f"To send to the study lead: {in_markup(page)} (no patient information)", soft_wrap=True)
    console.print(f"[bold {'green' if checked.ready else 'red'}]{in_markup(summary(checked))}[/]")


def _print_findings(console: Console, checked: CheckedSite, level: str, title: str, style: str) -> None:
    findings = [finding for finding in checked.findings if finding.level == level]
    if findings:
        console.print(f"[{style}]{title}: {len(findings)}[/]")
    for finding in findings[:MOST]:
        console.print(f"  {finding.area:<11} {in_markup(finding.text)}", soft_wrap=True)
    if len(findings) > MOST:
        console.print(f"  … and {len(findings) - MOST} more; the CSV file has them all")


def write_page(checked: CheckedSite, path: Path) -> Path:
    """Write the page; FedMedError: the file cannot be written."""
    write_output(path, page(checked).encode())
    path.chmod(0o644)  # it is made to be passed on
    return path


def page(checked: CheckedSite) -> str:
    charts = checked.inspection.bins(checked.images) + summarise_classes(checked.entries, checked.demands.classes or ())
    return fill_template(
        "check.html.j2",
        "fedmed.checks",
        site=checked.site.site,
        ready=checked.ready,
        summary=summary(checked),
        head=head(checked),
        sections=sections(checked),
        kinds=count_kinds(checked.findings),
        charts=charts,
        checked="data" not in checked.left_out,
        rounded=rounded,
        shown=shown,
    )
