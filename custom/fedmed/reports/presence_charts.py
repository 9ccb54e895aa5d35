"""Charts of several labels at once: scores by site and label, bars a label, and a video's labels along time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmed.engines.label_counts import LabelCounts
from fedmed.errors import DataError
from fedmed.reports.palette import INK, LIGHT, MUTED, PREDICTION_INK, TRUTH_INK
from fedmed.reports.plots import WIDTH
from fedmed.reports.ribbon import draw_ribbons, held
from fedmed.reports.run_contents import Run
from fedmed.reports.run_files import read_arrays
from fedmed.reports.site_rows import site_rows

ALL = "all frames"
KEYS = ("times", "truth", "probabilities", "classes", "threshold", "f1", "case")
BARS = (("precision", LIGHT[0]), ("recall", LIGHT[1]), ("F1", LIGHT[2]))


@dataclass(frozen=True)
class Timeline:
    """One video: times (T,) in seconds, truth and prediction bool (T, J), and the names of the labels."""

    kind: str
    case: str
    f1: float
    times: NDArray[np.float64]
    truth: NDArray[np.bool_]
    predicted: NDArray[np.bool_]
    classes: tuple[str, ...]


def read_timeline(path: Path, kind: str) -> Timeline:
    """Read ``best.npz`` and the like; DataError for a damaged file."""
    times, truth, probabilities, classes, threshold, f1, case = read_arrays(path, KEYS)
    if truth.shape != (len(times), len(classes)) or probabilities.shape != truth.shape:
        raise DataError(f"{path}: times, labels and probabilities differ in shape; evaluate the site again")
    predicted, names = probabilities >= float(threshold), tuple(str(name) for name in classes)
    return Timeline(kind, str(case), float(f1), times.astype(float), truth > 0, predicted, names)


def counts_of(run: Run) -> tuple[list[str], dict[str, LabelCounts]]:
    """Labels, and site -> counts of its test frames, of the sites that sent all of them."""
    rows = site_rows(run)
    names = [key.removeprefix("tp_") for row in rows for key in row.test if key.startswith("tp_")]
    ordered = [one.name for one in run.classes] or names
    labels = [name for name in ordered if name in names]
    found = {row.name: LabelCounts.from_numbers(row.test, labels) for row in rows if labels}
    return labels, {name: counts for name, counts in found.items() if counts is not None}


def total(counts: Mapping[str, LabelCounts], labels: Sequence[str]) -> LabelCounts:
    """Of the frames of all sites."""
    return sum(counts.values(), LabelCounts.none(len(labels)))


def heat_map(run: Run) -> Figure:
    """F1 of each label at each site and of all sites' frames together; a dash where the label is neither there nor
    called. The last column is the mean over the labels that are.
    """
    labels, counts = counts_of(run)
    rows = {**counts, ALL: total(counts, labels)}
    values = np.stack([one.f1("skip") for one in rows.values()])
    known = np.isfinite(values)
    means = np.where(known, values, 0).sum(1) / np.maximum(known.sum(1), 1)
    shown = np.column_stack([values, np.where(known.any(1), means, np.nan)])
    figure = Figure(figsize=(WIDTH, 1.5 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.set_title("F1 of each tool, from counts of frames")
    for (row, column), value in np.ndenumerate(shown):
        if np.isfinite(value):
            axes.fill_between([column - 0.48, column + 0.48], row - 0.46, row + 0.46, color=LIGHT[0], alpha=value * 0.6)
        text = f"{value:.2f}" if np.isfinite(value) else "–"
        weight = "bold" if column == len(labels) or row == len(counts) else "normal"
        axes.text(column, row, text, ha="center", va="center", color=INK, fontweight=weight)
    axes.set_xticks(range(len(labels) + 1), [*labels, "mean"], rotation=25, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), list(rows), color=INK)
    axes.set(xlim=(-0.5, len(labels) + 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.grid(visible=False)
    return figure


def label_bars(run: Run) -> Figure:
    """Precision, recall and F1 of each label over the frames of all sites, and how many frames show it."""
    labels, counts = counts_of(run)
    whole = total(counts, labels)
    scores = (whole.precision(), whole.recall(), whole.f1())
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    axes = figure.subplots()
    axes.set_title("Each tool, frames of all sites together")
    for place, ((name, colour), values) in enumerate(zip(BARS, scores, strict=True)):
        axes.bar(np.arange(len(labels)) + 0.26 * (place - 1), values, 0.24, color=colour, linewidth=0, label=name)
    shown = [f"{name}\n{n} frames" for name, n in zip(labels, whole.tp + whole.fn, strict=True)]
    axes.set_xticks(range(len(labels)), shown)
    axes.set(ylim=(0, 1))
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    return figure


def timelines(pictures: Sequence[Timeline], site: str) -> Figure:
    """Videos below one another: for each label what was there, and below it what the model called."""
    rows = [len(picture.classes) for picture in pictures]
    figure = Figure(figsize=(WIDTH, sum(0.75 + 0.27 * n for n in rows) + 0.3), layout="constrained")
    figure.suptitle(site, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    panels = figure.subplots(len(pictures), 1, squeeze=False, height_ratios=[0.75 + 0.27 * n for n in rows])
    for axes, picture in zip(panels[:, 0], pictures, strict=True):
        _timeline(axes, picture)
    return figure


def _timeline(axes: Axes, picture: Timeline) -> None:
    axes.set_title(f"{picture.kind}: {picture.case}, F1 {picture.f1:.2f}", fontsize=9.5, loc="left")
    unit, name = (60.0, "minutes") if picture.times[-1] > 600 else (1.0, "seconds")
    seen = ((picture.truth, TRUTH_INK), (picture.predicted, PREDICTION_INK))
    ribbons = [(held(picture.times, present, picture.classes, bridge=False), colour) for present, colour in seen]
    draw_ribbons(axes, picture.classes, ribbons, unit)
    axes.set(xlim=(0, ribbons[0][0].ends[-1] / unit), xlabel=name)
    axes.tick_params(axis="x", colors=MUTED)
    axes.tick_params(axis="y", labelcolor=INK)
