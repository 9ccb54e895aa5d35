"""Charts of a run, each drawn once: to PNG for slides, to SVG with the page's colours for the report."""

import re
from contextlib import AbstractContextManager
from io import BytesIO, StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmed.reports.palette import GRID, INK, MUTED, PAPER, VARIABLES, site_colours
from fedmed.reports.run_contents import Run
from fedmed.reports.site_rows import SiteRow, site_rows
from fedmed.reports.words import size

PANELS = 4  # in a row
WIDTH = 10.6  # inches; the page shows them at 100 px an inch
STYLE = Path(__file__).parent / "templates" / "report.mplstyle"
COLOURS: dict[Any, Any] = {"text.color": INK, "axes.edgecolor": GRID, "axes.labelcolor": MUTED, "axes.titlecolor": INK}
COLOURS |= {"grid.color": GRID, "xtick.color": MUTED, "ytick.color": MUTED}
RIGHT_OF_AXES: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
RIGHT_OF_AXES |= {"fontsize": 9, "annotation_clip": False}


def style() -> AbstractContextManager[None]:
    """Matplotlib settings of the charts, for the time of a block; a ``$`` in a name is drawn as such."""
    return mpl.rc_context(COLOURS, fname=STYLE)


def panels_of(n: int, height: float, across: int = PANELS, **layout: float) -> tuple[Figure, list[Axes]]:
    """A figure with n panels, at most ``across`` in a row, whose rows are so many inches high."""
    rows = -(-n // across)
    figure = Figure(figsize=(WIDTH, height * rows))
    figure.set_layout_engine("constrained", **{"wspace": 0.05, "hspace": 0.08, **layout})
    panels = list(figure.subplots(rows, -(-n // rows), squeeze=False).flat)
    for axes in panels[n:]:
        axes.set_axis_off()
    return figure, panels[:n]


def round_ticks(start: int, end: int) -> list[int]:
    """``start`` and at most a dozen round numbers up to ``end``: 1, 5, 10, 15, 20."""
    steps = (unit * 10**power for power in range(9) for unit in (1, 2, 5) if unit * 10**power != 2)
    step = next(step for step in steps if end - start <= 12 * step)
    return [start, *(x for x in range(step, end + 1, step) if x > start + step / 2)]


def round_axis(axes: Axes, run: Run, start: int) -> None:
    """Whole rounds from ``start`` to the last one planned."""
    end = max(run.total_rounds, start + 1)
    margin = (end - start) * 0.025
    axes.set_xlim(start - margin, end + margin)
    axes.set_xticks(round_ticks(start, end))


def participation(run: Run) -> Figure:
    """Draw who was aggregated in which round: disc area is the coefficient, a cross is a refused update."""
    names = {name for line in run.rounds for name in (*line.coefficients, *dict(line.refused))}
    colours = site_colours([site.name for site in run.sites])
    sites = [name for name in colours if name in names] or list(colours)
    figure = Figure(figsize=(WIDTH, 0.95 + 0.36 * len(sites)), layout="constrained")
    axes = figure.subplots()
    axes.set_title("Aggregation coefficient of each update")
    largest = max((c for line in run.rounds for c in line.coefficients.values()), default=0.0) or 1.0
    unit = min(210.0, (560 / max(run.total_rounds, 1)) ** 2)
    for row, name in enumerate(sites):
        given = {r.index + 1: max(r.coefficients[name], 0) for r in run.rounds if name in r.coefficients}
        refused = [r.index + 1 for r in run.rounds if name in dict(r.refused) and r.index + 1 not in given]
        areas = [unit * coefficient / largest for coefficient in given.values()]
        axes.scatter(list(given), [row] * len(given), s=areas, color=colours[name], linewidths=0)
        axes.scatter(refused, [row] * len(refused), s=min(unit / 2, 44), color=INK, marker="x", linewidths=1.4)
        if given:
            axes.annotate(f"{fmean(given.values()):.3f}", (1, row), (10, 0), **RIGHT_OF_AXES)
    axes.annotate("mean", (1, -0.82), (10, 0), color=MUTED, **RIGHT_OF_AXES)
    axes.set_yticks(range(len(sites)), sites, color=INK)
    axes.set(ylim=(len(sites) - 0.4, -0.6), xlabel="round")
    round_axis(axes, run, start=1)
    return figure


def traffic(run: Run) -> Figure:
    """Bytes that travelled and seconds that passed in each round."""
    figure = Figure(figsize=(WIDTH, 2.5))
    figure.set_layout_engine("constrained", wspace=0.06)
    sent, took = figure.subplots(1, 2)
    rows = [(r.index + 1, r.bytes_down or 0, r.bytes_up or 0, r.seconds or 0) for r in run.rounds]
    x, down, up, seconds = np.array(rows, dtype=float).reshape(-1, 4).T
    look: dict[str, Any] = {"width": 0.72, "color": MUTED, "linewidth": 0}
    sent.set_title("Bytes sent a round")
    sent.bar(x, down, label="to the sites", **look)
    sent.bar(x, up, bottom=down, alpha=0.4, label="to the server", **look)
    sent.yaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value) if value else "0"))
    took.set_title("Seconds a round")
    took.bar(x, seconds, **look)
    if len(x):
        sent.set_ylim(top=max(1.0, float((down + up).max())) * 1.3)
        sent.legend(frameon=False, loc="upper right", ncols=2, handlelength=0.9, handleheight=0.9, borderaxespad=0)
    last = max(run.total_rounds, 1)
    for axes in (sent, took):
        axes.set(xlabel="round", xlim=(0.4, last + 0.6), xticks=round_ticks(1, last))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    return figure


def final_scores(run: Run) -> Figure:
    """Final score of each site with its spread or interval, and every case where cases with a score are here."""
    rows = site_rows(run)
    colours = site_colours([row.name for row in rows])
    figure = Figure(figsize=(WIDTH, 0.9 + 0.42 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{run.score.label} on the test lists")
    for place, row in enumerate(rows):
        _final_score(axes, place, row, colours[row.name])
    axes.set_yticks(range(len(rows)), [row.name for row in rows], color=INK)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.4, -0.6))
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    return figure


def _final_score(axes: Axes, place: int, row: SiteRow, colour: str) -> None:
    if row.mean is None:
        axes.text(0.01, place, row.unscored, color=MUTED, va="center")
        return
    axes.scatter(row.cases, [place] * len(row.cases), s=26, color=colour, alpha=0.35, linewidths=0)
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [place, place], color=colour, linewidth=1.6)
    axes.plot([row.mean, row.mean], [place - 0.26, place + 0.26], color=colour, linewidth=3.2)
    axes.annotate(f"{row.mean:.3f}", (1, place), (10, 0), **RIGHT_OF_AXES)


def svg(figure: Figure, name: str) -> str:
    """Return the figure as an inline SVG element whose colours are the page's variables.

    ``name``: prefix of its ids, which must differ within a page.
    """
    buffer = StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"(href=\"|url\()#", rf"\1#{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    text = re.sub(r"font: ([^;\"]*?) ?'Inter'[^;\"]*", r"font: \1 var(--font)", text)
    return re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', rf'<svg \1role="img" class="{name}"', text, count=1)


def png(figure: Figure, path: Path | None = None, dots: int = 200) -> bytes:
    """Return the figure as a PNG of ``dots`` an inch on paper white, and write it when a path is given.

    Its layout is then as it stays: where the figure is drawn again, that need not be found anew.
    """
    buffer = BytesIO()
    FigureCanvasAgg(figure)
    quick = {"compress_level": 3}  # a third of the time of Pillow's 6
    figure.savefig(buffer, format="png", dpi=dots, facecolor=PAPER, metadata={"Software": None}, pil_kwargs=quick)
    figure.set_layout_engine("none")
    if path:
        path.write_bytes(buffer.getvalue())
    return buffer.getvalue()
