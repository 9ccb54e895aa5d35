"""Charts of the probabilities of a classification at each site: ROC curves, reliability and confusion."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedmed.errors import DataError
from fedmed.reports.palette import MUTED, site_colours
from fedmed.reports.plots import PANELS, WIDTH, panels_of
from fedmed.reports.run_contents import Run
from fedmed.reports.run_files import column
from fedmed.reports.sheet import draw_counts

BIN = 10  # cases in a bin of the reliability curve, or as few more as make equal bins
MAX_BINS = 8
LETTER = 0.075  # inches, about
PREFIX = "p_"  # of a class's column in cases.csv


def roc(run: Run) -> Figure:
    """One panel a class with a curve a site, all its cases pooled, and last a reliability curve a site."""
    sites, colours = tested(run), site_colours([site.name for site in run.sites])
    classes = list(dict.fromkeys(name for outputs in sites.values() for name in outputs.classes))
    figure, panels = panels_of(len(classes) + 1, height=3.3, h_pad=0.14)  # between the names and the titles
    for axes in panels:
        unit_square(axes, diagonal=True)
    for axes, name in zip(panels, classes, strict=False):
        axes.set_title(f"ROC, {name}")
        axes.set_xlabel("false positive rate")
        for site, outputs in sites.items():
            place = outputs.classes.index(name) if name in outputs.classes else -1
            if place >= 0 and (curve := roc_points(outputs.labels == place, outputs.values[:, place])):
                axes.plot(*curve, color=colours[site], linewidth=1.8, clip_on=False)
    panels[0].set_ylabel("true positive rate")
    last = panels[-1]
    last.set_title("Reliability")
    for site, outputs in sites.items():
        confidence, share, cases = reliability(outputs)
        last.plot(confidence, share, color=colours[site], linewidth=1.6)
        last.scatter(confidence, share, s=10 + 1.6 * cases, color=colours[site], linewidths=0, clip_on=False)
    name_sites(figure, sites, colours)
    last.set_xlabel("probability of the called class")
    last.set_ylabel("share that was right")
    return figure


def roc_points(labels: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """False and true positive rates at every threshold, ties taken together; None with one sort of case only.

    Args:
        labels: (n,) bool.
        values: (n,) float, higher for a more certain positive.
    """
    if labels.all() or not labels.any():
        return None
    called, true = calls_and_hits(labels, values)
    false = called - true
    return np.r_[0.0, false / false[-1]], np.r_[0.0, true / true[-1]]


def calls_and_hits(labels: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count those called at every threshold, ties taken together, and those of them called rightly; see above."""
    order = np.argsort(-values, kind="stable")
    last = np.r_[np.flatnonzero(np.diff(values[order])), len(values) - 1]
    return last + 1, np.cumsum(labels[order])[last]


@dataclass(frozen=True)
class Probabilities:
    """All cases of a site: labels (n,) int, probabilities (n, C), and the names of the classes."""

    classes: tuple[str, ...]
    labels: np.ndarray
    values: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """Place of the class with the highest probability, (n,) int."""
        return self.values.argmax(axis=1)


def reliability(outputs: Probabilities) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean probability of the called class, share of right calls, and cases, in bins of as many cases each."""
    confidence = outputs.values.max(axis=1)
    right = outputs.predicted == outputs.labels
    order = np.argsort(confidence, kind="stable")
    bins = np.array_split(order, min(MAX_BINS, max(1, len(order) // BIN)))
    cases = np.array([len(b) for b in bins], dtype=float)
    return np.array([confidence[b].mean() for b in bins]), np.array([right[b].mean() for b in bins]), cases


def confusion(run: Run) -> Figure:
    """One panel a site: cases of each true class (rows) and what the model called them (columns)."""
    sites, colours = tested(run), site_colours([site.name for site in run.sites])
    n = max(len(outputs.classes) for outputs in sites.values())
    longest = LETTER * max(len(name) for outputs in sites.values() for name in outputs.classes)
    slanted: dict[str, Any] = {}
    if longest > (WIDTH - 1.2) / min(len(sites), PANELS) / n:
        slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    figure, panels = panels_of(len(sites), height=0.9 + 0.42 * n + (0.6 * longest if slanted else 0))
    for place, (axes, (site, outputs)) in enumerate(zip(panels, sites.items(), strict=True)):
        axes.set_title(site)
        counts = confusion_counts(outputs)
        draw_counts(axes, counts, colours[site])
        axes.set_xticks(range(len(outputs.classes)), outputs.classes, **slanted)
        axes.set_yticks(range(len(outputs.classes)), outputs.classes if place % PANELS == 0 else [])
        axes.set_xlabel("called")
        axes.set_ylabel("true class" if place % PANELS == 0 else "")
    return figure


def confusion_counts(outputs: Probabilities) -> np.ndarray:
    """(C, C) int: cases of true class i that were called j."""
    counts = np.zeros((len(outputs.classes),) * 2, dtype=int)
    np.add.at(counts, (outputs.labels, outputs.predicted), 1)
    return counts


def name_sites(figure: Figure, sites: Iterable[str], colours: Mapping[str, str]) -> None:
    """Name each line above the panels, in its colour."""
    lines = [Line2D([], [], color=colours[site], linewidth=1.8, label=site) for site in sites]
    figure.legend(handles=lines, loc="outside upper left", ncols=6, frameon=False, labelcolor="linecolor", fontsize=9.5)


def unit_square(axes: Axes, diagonal: bool = False) -> None:
    """Both axes from 0 to 1, equally long."""
    axes.set(xlim=(0, 1), ylim=(0, 1), box_aspect=1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    if diagonal:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)


def probabilities(cases: pd.DataFrame) -> Probabilities | None:
    """Take ``cases.csv``; None where it has no classes. Cases without a finite probability are left out.

    Raises:
        DataError: a label that is not one of the classes.
    """
    heads = [name for name in cases if name.startswith(PREFIX)]
    if not heads:
        return None
    classes = [name.removeprefix(PREFIX) for name in heads]
    values = np.column_stack([column(cases, head) for head in heads])
    names = cases["label"] if "label" in cases else pd.Series("", cases.index)
    labels = pd.Index(classes).get_indexer(names)
    if (labels < 0).any():
        unknown = names[labels < 0].min()
        raise DataError(f"cases.csv has the label '{unknown}', but the classes {', '.join(classes)}; evaluate again")
    known = np.isfinite(values).all(axis=1)
    return Probabilities(tuple(classes), labels[known], values[known])


def tested(run: Run) -> dict[str, Probabilities]:
    """Site -> the probabilities of its cases, of the sites whose cases are here."""
    known = ((site.name, probabilities(site.cases)) for site in run.sites)
    return {name: outputs for name, outputs in known if outputs is not None and len(outputs.labels)}
