"""A page of facts and tables, on screen or as one HTML file that needs nothing else."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.table import Table as ScreenTable
from rich.text import Text

from fedmed.errors import FedMedError
from fedmed.files import write_atomically
from fedmed.reports import palette

TEMPLATE = "sheet.html.j2"


@dataclass(frozen=True)
class SheetTable:
    """One table.

    Attributes:
        title, note: above it.
        columns: heads; one that ends in ``#`` holds numbers, which stand at the right.
        rows: texts, as many in each as there are columns.
        long: on the page alone, folded up; the screen says how many rows there are.
    """

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]
    long: bool = False


@dataclass(frozen=True)
class Sheet:
    """The page.

    Attributes:
        title: whose page; ``kind``: which page.
        summary: the most important in one or two sentences.
        facts: short figures, (name, value).
        notices: what must not be overlooked.
        tables: in their order.
        closing: (head, paragraphs) of the box at the end.
    """

    title: str
    kind: str
    summary: str
    facts: list[tuple[str, str]]
    tables: list[SheetTable]
    notices: list[str] = field(default_factory=list)
    closing: list[tuple[str, list[str]]] = field(default_factory=list)


def fill_template(name: str, **values: Any) -> str:
    """Return the HTML of a template of this folder, with the colours of both themes."""
    layout: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=PackageLoader("fedmed.reports"), autoescape=True, **layout)
    values |= {"light": palette.css(dark=False), "dark": palette.css(dark=True)}
    values |= {"truth": palette.TRUTH, "prediction": palette.PREDICTION}
    return environment.get_template(name).render(values)


def html(sheet: Sheet) -> str:
    """Return the page's HTML."""
    return fill_template(TEMPLATE, sheet=sheet)


def write_html(sheet: Sheet, path: Path) -> Path:
    """Write the page.

    Raises:
        FedMedError: the file cannot be written.
    """
    try:
        write_atomically(path, lambda stream: stream.write(html(sheet).encode()))
    except OSError as error:
        raise FedMedError(f"cannot write {path} ({error.strerror or error}); choose another file with --out") from error
    return path


def show(sheet: Sheet, console: Console) -> None:
    """Print the page; long tables are only counted."""
    console.print(Text(sheet.summary))
    for notice in sheet.notices:
        console.print(Text(f"! {notice}", style="bold"))
    for table in sheet.tables:
        if table.long:
            console.print(Text(f"{table.title}: {len(table.rows)}; --out PAGE lists them"))
            continue
        grid = ScreenTable(title=table.title, title_justify="left", title_style="bold")
        for column in table.columns:
            grid.add_column(column.rstrip("#"), justify="right" if column.endswith("#") else "left", overflow="fold")
        for row in table.rows:
            grid.add_row(*map(Text, row))
        console.print(grid)
    for head, paragraphs in sheet.closing:
        console.print(Text(f"{head}: {' '.join(paragraphs)}"))
