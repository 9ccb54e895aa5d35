"""Charts of what labels and phases are called, and what they are."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedmed.reports.palette import INK, LIGHT, MUTED, PAPER, PHASES
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import Run
from fedmed.reports.sheet import SLANTED, draw_cells, draw_counts
from fedmed.reports.site_rows import site_rows
from fedmed.training.label_counts import Confusion, LabelCounts

ALL = "all frames"
FEW, LETTERS = 8, 13  # columns whose names have room for words below one another, and letters of a line of them
BARS = (("precision", LIGHT[0]), ("recall", LIGHT[1]), ("F1", LIGHT[2]))
Counts = Mapping[str, LabelCounts]
CELL = (0.46, 0.34)  # inches of a table of counts: width and height of a cell
LEGEND = 3  # phases in a line of the legend
TABLE_GAP = 0.75  # inches between two tables, for the numbers of phases
CHIP: dict[str, Any] = {"color": PAPER, "fontsize": 8.5, "fontweight": "bold", "ha": "center", "va": "center"}


def counts_of(run: Run) -> tuple[list[str], dict[str, LabelCounts]]:
    """Labels, and site -> counts of its test frames, of the sites that sent all of them."""
    labels = labels_of(run, "tp_")
    read = {row.name: LabelCounts.from_numbers(row.test, labels) for row in site_rows(run) if labels}
    return labels, {name: counts for name, counts in read.items() if counts is not None}


def confusions_of(run: Run) -> tuple[list[str], dict[str, Confusion]]:
    """Phases, and site -> which of them were taken for which, of the sites that sent all counts."""
    phases = [one.name for one in run.classes]
    read = {row.name: Confusion.from_numbers(row.test, phases) for row in site_rows(run)}
    return phases, {name: counts for name, counts in read.items() if counts is not None}


def labels_of(run: Run, before: str) -> list[str]:
    """The run's classes of which a site sent a number ``<before><class>``, in their order."""
    sent = [key.removeprefix(before) for row in site_rows(run) for key in row.test if key.startswith(before)]
    return [name for name in [one.name for one in run.classes] or sent if name in sent]


def total(counts: Counts, labels: Sequence[str]) -> LabelCounts:
    """Of the frames of all sites."""
    return sum(counts.values(), LabelCounts.none(len(labels)))


def heat_map(labels: Sequence[str], counts: Counts, what: str) -> Figure:
    """F1 of each label at each site and of all sites' frames together; a dash where the label is neither there nor
    called. The last column is the mean over the labels that are; ``what``: what a label is.
    """
    rows = {**counts, ALL: total(counts, labels)}
    values = np.stack([one.f1("skip") for one in rows.values()])
    figure = Figure(figsize=(WIDTH, 1.5 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"F1 of each {what}, from counts of frames")
    known = np.isfinite(values)
    means = np.where(known, values, 0).sum(1) / np.maximum(known.sum(1), 1)
    shown = np.column_stack([values, np.where(known.any(1), means, np.nan)])
    texts = [[f"{value:.2f}" if np.isfinite(value) else "–" for value in row] for row in shown]
    bold = np.zeros_like(shown, bool)
    bold[-1], bold[:, -1] = True, True
    draw_cells(axes, texts, shown, bold)
    _name_columns(axes, [*labels, "mean"])
    axes.set_yticks(range(len(rows)), list(rows), color=INK)
    return figure


def _name_columns(axes: Axes, names: Sequence[str]) -> None:
    """Below the cells: words below one another where there is room, else slanted."""
    wrapped = [wrap(name.replace("_", " "), LETTERS, break_long_words=False) for name in names]
    fit = len(names) <= FEW and max(len(line) for lines in wrapped for line in lines) <= LETTERS
    shown = ["\n".join(lines) for lines in wrapped] if fit else names
    axes.set_xticks(range(len(names)), shown, **({} if fit else SLANTED))


def label_bars(labels: Sequence[str], counts: Counts, what: str) -> Figure:
    """Precision, recall and F1 of each label over the frames of all sites, and how many frames show it."""
    whole = total(counts, labels)
    scores = (whole.precision(), whole.recall(), whole.f1())
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"Each {what}, frames of all sites together")
    for place, ((name, colour), values) in enumerate(zip(BARS, scores, strict=True)):
        axes.bar(np.arange(len(labels)) + 0.26 * (place - 1), values, 0.24, color=colour, linewidth=0, label=name)
    shown = [f"{name}\n{n} frames" for name, n in zip(labels, whole.tp + whole.fn, strict=True)]
    axes.set_xticks(range(len(labels)), shown)
    axes.set(ylim=(0, 1))
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    return figure


def phase_colours(phases: Sequence[str]) -> dict[str, str]:
    """Phase -> colour, by its place among the outputs; from the ninth on they repeat."""
    return {name: PHASES[place % len(PHASES)] for place, name in enumerate(phases)}


def spoken(name: str) -> str:
    """A phase as it is said: ``clipping and cutting``."""
    return name.replace("_", " ")


def phase_legend(figure: Figure, phases: Sequence[str]) -> None:
    """Below all panels: number, name and colour of each phase."""
    colours = phase_colours(phases)
    named = [(f"{place}  {spoken(name)}", colours[name]) for place, name in enumerate(phases, start=1)]
    patches = [Patch(color=colour, linewidth=0, label=label) for label, colour in named]
    figure.legend(handles=patches, loc="outside lower left", ncols=LEGEND, frameon=False, fontsize=9)


def legend_height(phases: Sequence[str]) -> float:
    """Inches that :func:`phase_legend` takes."""
    return 0.15 + 0.22 * -(-len(phases) // LEGEND)


def confusion_maps(phases: Sequence[str], confusions: Mapping[str, Confusion]) -> Figure:
    """A table a site, before them that of all sites' frames: of each true phase (rows) how many were called which."""
    whole = {"all sites": sum(confusions.values(), Confusion.none(len(phases)))}
    tables = {**whole, **confusions} if len(confusions) > 1 else dict(confusions)
    wide = CELL[0] * len(phases) + TABLE_GAP
    columns = max(1, min(len(tables), int(WIDTH / wide)))
    rows = -(-len(tables) // columns)
    height = rows * (CELL[1] * len(phases) + 0.85) + legend_height(phases)
    figure = Figure(figsize=(WIDTH, height))
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.05)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, confusion) in zip(panels, tables.items(), strict=False):
        _table(axes, name, confusion, phases)
    for axes in panels[len(tables) :]:
        axes.set_axis_off()
    phase_legend(figure, phases)
    return figure


def _table(axes: Axes, name: str, confusion: Confusion, phases: Sequence[str]) -> None:
    scores = confusion.scores()
    axes.set_title(f"{name}: F1 {scores['f1']:.2f}, accuracy {scores['accuracy']:.2f}", pad=24)
    draw_counts(axes, confusion.table)
    for place, colour in enumerate(phase_colours(phases).values()):
        box = {"boxstyle": "round,pad=0.25", "facecolor": colour, "linewidth": 0}
        for x, y in ((-0.85, place), (place, -0.82)):
            axes.text(x, y, str(place + 1), bbox=box, clip_on=False, **CHIP)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_ylabel("truth", color=MUTED, labelpad=26)
    axes.set_xlabel("called", color=MUTED)
