"""Labels along time: one row a label, in it a bar for every stretch of time that has it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fedmed.reports.palette import GRID

SAME = 1e-6  # seconds
PLAIN = 1.5  # times the usual step, beyond which there is a gap between two rows
PITCH, GAP = 0.76, 0.04  # of a row: the share that bars take, and what stays free below each of them


@dataclass(frozen=True)
class Ribbon:
    """Which labels hold when.

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
        own, found = self.present[:, self.names.index(name)], list[list[float]]()
        for begin, end in zip(self.seconds[own].tolist(), self.ends[own].tolist(), strict=True):
            if found and begin - found[-1][1] < SAME:
                found[-1][1] = end
            else:
                found.append([begin, end])
        return [(begin / unit, (end - begin) / unit) for begin, end in found]

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
        own = [(ribbon.spans(name, unit), colour) for ribbon, colour in ribbons if name in ribbon.names]
        pitch = PITCH / max(1, len(own))
        for place, (bars, colour) in enumerate(own):
            axes.broken_barh(bars, (row - 0.36 + place * pitch, pitch - GAP), color=colour, linewidth=0)
        if row:
            axes.axhline(row - 0.5, color=line, linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False)
