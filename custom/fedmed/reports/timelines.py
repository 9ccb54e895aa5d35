"""Videos along time: true and called phases or tools as ribbons."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.reports.label_charts import CHIP, legend_height, phase_colours, phase_legend
from fedmed.reports.palette import GRID, INK, LIGHT, MUTED, PREDICTION_INK, TRUTH_INK
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_files import read_arrays

SAME = 1e-6  # seconds
PLAIN = 1.5  # times the usual step, beyond which there is a gap between two rows
PITCH, GAP = 0.76, 0.04  # of a row: the share that bars take, and what stays free below each of them
LABELS = ("times", "truth", "probabilities", "classes", "threshold", "f1", "case")
PHASES = ("times", "truth", "called", "classes", "f1", "case")
MODEL_INKS = (LIGHT[6], PREDICTION_INK)  # of a model trained alone, and of one trained together
ROOM = 0.03  # of a ribbon: a stretch that is longer has room for the number of its phase


@dataclass(frozen=True)
class Ribbon:
    """Labels along time.

    Attributes:
        seconds, ends: (N,) when each row begins, increasing, and ends, at the latest with the next.
        present: bool (N, n).
        names: of the n labels.
    """

    seconds: NDArray[np.float64]
    ends: NDArray[np.float64]
    present: NDArray[np.bool_]
    names: tuple[str, ...]

    def spans(self, name: str, unit: float = 1.0) -> list[tuple[float, float]]:
        """(begin, length), in units of so many seconds, of every stretch of time that has a label."""
        rows, stretches = self.present[:, self.names.index(name)], list[list[float]]()
        for begin, end in zip(self.seconds[rows].tolist(), self.ends[rows].tolist(), strict=True):
            if stretches and begin - stretches[-1][1] < SAME:
                stretches[-1][1] = end
            else:
                stretches.append([begin, end])
        return [(begin / unit, (end - begin) / unit) for begin, end in stretches]

    def at(self, second: float) -> list[str]:
        """The labels at a time; none where nothing is said of it."""
        row = int(np.searchsorted(self.seconds, second + SAME, side="right")) - 1
        if row < 0 or second >= self.ends[row] + SAME:
            return []
        return [name for name, there in zip(self.names, self.present[row], strict=True) if there]


def held(seconds: NDArray[np.float64], present: NDArray[np.bool_], names: Sequence[str], bridge: bool) -> Ribbon:
    """Rows that hold until the next, the last as long as most others; with ``bridge`` over gaps as well."""
    step = usual_step(seconds)
    ends = np.append(seconds[1:], seconds[-1] + step)
    plain = bridge | (ends - seconds <= PLAIN * step)
    return Ribbon(seconds, np.where(plain, ends, seconds + step), present, tuple(names))


def usual_step(seconds: NDArray[np.float64]) -> float:
    """Seconds from one row to the next, the median; 1 for a single row."""
    return float(np.median(np.diff(seconds))) if len(seconds) > 1 else 1.0


def draw_ribbons(
    axes: Axes, names: Sequence[str], ribbons: Sequence[tuple[Ribbon, str]], unit: float = 1.0, line: str = GRID
) -> None:
    """Draw a row for each name, the first on top, with the ribbons that know the name below one another in it.

    Args:
        axes: where; the caller sets the limits of its time.
        names: of the rows.
        ribbons: with their colours.
        unit: seconds in one unit of the axis.
        line: colour of the lines between rows.
    """
    for row, name in enumerate(names):
        drawn = [(ribbon.spans(name, unit), colour) for ribbon, colour in ribbons if name in ribbon.names]
        pitch = PITCH / max(1, len(drawn))
        for place, (bars, colour) in enumerate(drawn):
            axes.broken_barh(bars, (row - 0.36 + place * pitch, pitch - GAP), color=colour, linewidth=0)
        if row:
            axes.axhline(row - 0.5, color=line, linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False)


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
    true, predicted = (one.reshape(-1, 1) == np.arange(len(classes)) for one in (truth, called))
    names = tuple(map(str, classes))
    return _fitting(path, Timeline(kind, str(case), float(f1), times.astype(float), true, predicted, names))


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
        _draw_phases(axes, {"truth": one.ribbon(one.truth), "called": one.ribbon(one.called)}, colours, unit)
    phase_legend(figure, classes)
    return figure


def _draw_phases(axes: Axes, rows: Mapping[str, Ribbon], colours: Mapping[str, str], unit: float) -> None:
    """Draw ribbons below one another, each coloured by its phases, with the phases' numbers where there is room."""
    room, numbers = ROOM * axes.get_xlim()[1], {name: str(n) for n, name in enumerate(colours, start=1)}
    for row, ribbon in enumerate(rows.values()):
        for name in ribbon.names:
            spans = ribbon.spans(name, unit)
            axes.broken_barh(spans, (row - 0.46, 0.92), color=colours[name], linewidth=0)
            for begin, length in spans:
                if length > room:
                    axes.text(begin + length / 2, row, numbers[name], **CHIP)
    axes.set_yticks(range(len(rows)), list(rows), color=INK)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def model_ribbons(models: Mapping[str, Timeline]) -> Figure:
    """One video: a ribbon coloured by its true phases, and below it one for what each model called."""
    first = next(iter(models.values()))
    figure = Figure(figsize=(WIDTH, 0.6 + 0.3 * (1 + len(models))), layout="constrained")
    axes = figure.subplots()
    rows = {"truth": first.ribbon(first.truth)} | {title: one.ribbon(one.called) for title, one in models.items()}
    _draw_phases(axes, rows, phase_colours(first.classes), _time_axis(axes, first))
    return figure


def model_rows(models: Mapping[str, Timeline]) -> Figure:
    """One video: for each label in truth or prediction when it was there, and below it when each model called it."""
    first = next(iter(models.values()))
    known = np.any([first.truth, *(one.called for one in models.values())], axis=(0, 1))
    names = [name for name, there in zip(first.classes, known, strict=True) if there]
    figure = Figure(figsize=(WIDTH, 0.6 + 0.36 * max(1, len(names))), layout="constrained")
    axes = figure.subplots()
    called = [(one.ribbon(one.called), colour) for one, colour in zip(models.values(), MODEL_INKS, strict=True)]
    draw_ribbons(axes, names, [(first.ribbon(first.truth), TRUTH_INK), *called], _time_axis(axes, first))
    axes.tick_params(axis="y", labelcolor=INK)
    return figure


def _panels(
    figure: Figure, pictures: Sequence[Timeline], site: str, heights: Sequence[float]
) -> Iterator[tuple[Axes, Timeline, float]]:
    """A panel a video with its title and its axis of time, and of how many seconds that axis has its unit."""
    figure.suptitle(site, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    panels = figure.subplots(len(pictures), 1, squeeze=False, height_ratios=heights)
    for axes, one in zip(panels[:, 0], pictures, strict=True):
        axes.set_title(f"{one.kind}: {one.case}, F1 {one.f1:.2f}", fontsize=9.5, loc="left")
        yield axes, one, _time_axis(axes, one)


def _time_axis(axes: Axes, one: Timeline) -> float:
    """Set the axis of a video's time, and return of how many seconds it has its unit."""
    unit, name = (60.0, "minutes") if one.times[-1] > 600 else (1.0, "seconds")
    axes.set(xlim=(0, (one.times[-1] + usual_step(one.times)) / unit), xlabel=name)
    axes.grid(visible=False)
    axes.tick_params(axis="x", colors=MUTED)
    return unit
