"""Videos along time: what was there, and what the model called."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.reports.palette import INK, MUTED, PREDICTION_INK, TRUTH_INK
from fedmed.reports.phase_charts import CHIP, legend_height, phase_colours, phase_legend
from fedmed.reports.plots import WIDTH
from fedmed.reports.ribbon import Ribbon, draw_ribbons, held, usual_step
from fedmed.reports.run_files import read_arrays

LABELS = ("times", "truth", "probabilities", "classes", "threshold", "f1", "case")
PHASES = ("times", "truth", "called", "classes", "f1", "case")
ROOM = 0.03  # of a ribbon: a stretch that is longer has room for the number of its phase


@dataclass(frozen=True)
class Timeline:
    """One video: times (T,) in seconds, truth and prediction, bool (T, J), and the names of the J classes."""

    kind: str
    case: str
    f1: float
    times: NDArray[np.float64]
    truth: NDArray[np.bool_]
    called: NDArray[np.bool_]
    classes: tuple[str, ...]

    def ribbon(self, seen: NDArray[np.bool_]) -> Ribbon:
        """Of truth or prediction."""
        return held(self.times, seen, self.classes, bridge=False)


def read_labels(path: Path, kind: str) -> Timeline:
    """Read ``best.npz`` and the like of several labels at once; DataError for a damaged file."""
    times, truth, probabilities, classes, threshold, f1, case = read_arrays(path, LABELS)
    called, names = probabilities >= float(threshold), tuple(map(str, classes))
    return _fitting(path, Timeline(kind, str(case), float(f1), times.astype(float), truth > 0, called, names))


def read_phases(path: Path, kind: str) -> Timeline:
    """Read ``best.npz`` and the like of one class a frame; DataError for a damaged file."""
    times, truth, called, classes, f1, case = read_arrays(path, PHASES)
    true, found = (one.reshape(-1, 1) == np.arange(len(classes)) for one in (truth, called))
    names = tuple(map(str, classes))
    return _fitting(path, Timeline(kind, str(case), float(f1), times.astype(float), true, found, names))


def _fitting(path: Path, timeline: Timeline) -> Timeline:
    shape = len(timeline.times), len(timeline.classes)
    if timeline.truth.shape != shape or timeline.called.shape != shape or not len(timeline.times):
        raise DataError(f"{path}: times, labels and predictions differ in shape; evaluate the site again")
    return timeline


def label_rows(pictures: Sequence[Timeline], site: str) -> Figure:
    """Videos below one another: for each label what was there, and below it what the model called."""
    tall = [0.75 + 0.27 * len(one.classes) for one in pictures]
    figure = Figure(figsize=(WIDTH, sum(tall) + 0.3), layout="constrained")
    for axes, one, unit in _panels(figure, pictures, site, tall):
        both = ((one.ribbon(one.truth), TRUTH_INK), (one.ribbon(one.called), PREDICTION_INK))
        draw_ribbons(axes, one.classes, both, unit)
        axes.tick_params(axis="y", labelcolor=INK)
    return figure


def ribbons(pictures: Sequence[Timeline], site: str) -> Figure:
    """Videos below one another: a ribbon coloured by what was there, and below it one by what the model called.

    Long stretches have the phase's number, by which it is known without its colour.
    """
    classes = tuple(dict.fromkeys(name for one in pictures for name in one.classes))
    colours, tall = phase_colours(classes), 1.3 * len(pictures) + 0.35 + legend_height(classes)
    figure = Figure(figsize=(WIDTH, tall), layout="constrained")
    for axes, one, unit in _panels(figure, pictures, site, [1.0] * len(pictures)):
        for row, seen in enumerate((one.truth, one.called)):
            for name in one.classes:
                spans = one.ribbon(seen).spans(name, unit)
                axes.broken_barh(spans, (row - 0.46, 0.92), color=colours[name], linewidth=0)
                room, number = ROOM * axes.get_xlim()[1], str(classes.index(name) + 1)
                for begin, length in spans:
                    if length > room:
                        axes.text(begin + length / 2, row, number, **CHIP)
        axes.set_yticks((0, 1), ("truth", "called"), color=INK)
        axes.set_ylim(1.5, -0.5)
    phase_legend(figure, classes)
    return figure


def _panels(
    figure: Figure, pictures: Sequence[Timeline], site: str, heights: Sequence[float]
) -> Iterator[tuple[Axes, Timeline, float]]:
    """A panel a video with its title and its axis of time, and of how many seconds that axis has its unit."""
    figure.suptitle(site, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    panels = figure.subplots(len(pictures), 1, squeeze=False, height_ratios=heights)
    for axes, one in zip(panels[:, 0], pictures, strict=True):
        axes.set_title(f"{one.kind}: {one.case}, F1 {one.f1:.2f}", fontsize=9.5, loc="left")
        unit, name = (60.0, "minutes") if one.times[-1] > 600 else (1.0, "seconds")
        axes.set(xlim=(0, (one.times[-1] + usual_step(one.times)) / unit), xlabel=name)
        axes.grid(visible=False)
        axes.tick_params(axis="x", colors=MUTED)
        yield axes, one, unit
