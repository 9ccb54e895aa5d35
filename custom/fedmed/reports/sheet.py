"""A page of tables, in a terminal and as HTML, and pictures of its cells."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike
from rich.console import Console
from rich.table import Table as ScreenTable
from rich.text import Text

from fedmed.errors import FedMedError
from fedmed.files import write_atomically
from fedmed.plain_text import in_markup, in_terminal
from fedmed.reports import palette
from fedmed.reports.palette import INK, LIGHT

SLANTED: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}  # names below a table


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


def fill_template(name: str, package: str = "fedmed.reports", **values: Any) -> str:
    """Return the HTML of a template of a package, with the colours of both themes."""
    values |= {"light": palette.css(dark=False), "dark": palette.css(dark=True)}
    values |= {"truth": palette.TRUTH, "prediction": palette.PREDICTION}
    return _templates(package).get_template(name).render(values)


@cache
def _templates(package: str) -> Environment:
    """The templates of a package, each compiled once."""
    layout: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    return Environment(loader=PackageLoader(package), autoescape=True, **layout)


def html(sheet: Sheet) -> str:
    return fill_template("sheet.html.j2", sheet=sheet)


def write_html(sheet: Sheet, path: Path) -> Path:
    """Write the page; FedMedError: the file cannot be written."""
    return write_output(path, html(sheet).encode())


def write_output(path: Path, content: bytes, option: str = "--out") -> Path:
    """Write a file that a person has named by an option; FedMedError: it cannot be written."""
    try:
        write_atomically(path, lambda stream: stream.write(content))
    except OSError as error:
        raise FedMedError(f"cannot write {path} ({error.strerror or error}); choose another with {option}") from error
    return path


def as_values(sheet: Sheet) -> dict[str, Any]:
    """Plain values of the page, without its pictures, for a program."""
    tables = [
        {"title": one.title, "columns": [head.removesuffix("#") for head in one.columns], "rows": one.rows}
        for one in sheet.tables
    ]
    values = {"title": sheet.title, "kind": sheet.kind, "summary": sheet.summary, "facts": dict(sheet.facts)}
    return {**values, "notices": sheet.notices, "tables": tables}


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


def draw_cells(
    axes: Axes, texts: Sequence[Sequence[str]], strengths: ArrayLike, bold: ArrayLike, colour: str = LIGHT[0]
) -> None:
    """Fill a panel with R rows of C cells, the first row at the top.

    Args:
        axes: the panel.
        texts: (R, C).
        strengths: (R, C) of the colour, 0…1; NaN = none.
        bold: bool (R, C).
        colour: of all cells.
    """
    shares, thick = np.asarray(strengths, float), np.asarray(bold, bool)
    rows, columns = shares.shape
    for (row, column), share in np.ndenumerate(shares):
        look: dict[str, Any] = {"facecolor": colour, "alpha": 0.04 + 0.5 * float(np.nan_to_num(share)), "linewidth": 0}
        if np.isfinite(share):
            axes.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, **look))
        weight = "bold" if thick[row, column] else "normal"
        axes.text(column, row, texts[row][column], ha="center", va="center", color=INK, fontweight=weight)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


def draw_counts(axes: Axes, counts: np.ndarray, colour: str = LIGHT[0]) -> None:
    """Counts (C, C) of a true class (rows) that were called one (columns), coloured by their share of the row."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    draw_cells(axes, [[str(n) for n in row] for row in counts], shares, np.eye(len(counts)), colour)
