"""A page of facts and tables, on screen or as one HTML file that needs nothing else."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.table import Table as ScreenTable
from rich.text import Text

from fedmed.errors import FedMedError
from fedmed.files import write_atomically
from fedmed.plain_text import in_markup, in_terminal
from fedmed.reports import palette


@dataclass(frozen=True)
class SheetTable:
    """One table, below its title and note."""

    title: str
    note: str
    columns: list[str]  # heads; one that ends in ``#`` holds numbers, which stand at the right
    rows: list[list[str]]
    long: bool = False  # on the page alone, folded up; the screen says how many rows there are


@dataclass(frozen=True)
class SheetFigure:
    """One picture on the page, below its title and note; the screen has none."""

    title: str
    note: str
    drawn: Markup  # inline SVG or other HTML that our own code made


@dataclass(frozen=True)
class Sheet:
    """The page."""

    title: str  # whose page
    kind: str  # which page
    summary: str  # the most important in one or two sentences
    facts: list[tuple[str, str]]  # short figures, (name, value)
    tables: list[SheetTable]
    notices: list[str] = field(default_factory=list)  # what must not be overlooked
    closing: list[tuple[str, list[str]]] = field(default_factory=list)  # (head, paragraphs) of the box at the end
    figures: list[SheetFigure] = field(default_factory=list)  # after the tables


def fill_template(name: str, **values: Any) -> str:
    """Return the HTML of a template of this folder, with the colours of both themes."""
    layout: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=PackageLoader("fedmed.reports"), autoescape=True, **layout)
    values |= {"light": palette.css(dark=False), "dark": palette.css(dark=True)}
    values |= {"truth": palette.TRUTH, "prediction": palette.PREDICTION}
    return environment.get_template(name).render(values)


def html(sheet: Sheet) -> str:
    """Return the page's HTML."""
    return fill_template("sheet.html.j2", sheet=sheet)


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
    console.print(Text(in_terminal(sheet.summary)))
    for notice in sheet.notices:
        console.print(Text(f"! {in_terminal(notice)}", style="bold"))
    for table in sheet.tables:
        if table.long:
            console.print(Text(f"{in_terminal(table.title)}: {len(table.rows)}; --out PAGE lists them"))
            continue
        grid = ScreenTable(title=in_markup(table.title), title_justify="left", title_style="bold")
        for column in table.columns:
            grid.add_column(
                in_markup(column.rstrip("#")), justify="right" if column.endswith("#") else "left", overflow="fold"
            )
        for row in table.rows:
            grid.add_row(*(Text(in_terminal(cell)) for cell in row))
        console.print(grid)
    for head, paragraphs in sheet.closing:
        console.print(Text(in_terminal(f"{head}: {' '.join(paragraphs)}")))
