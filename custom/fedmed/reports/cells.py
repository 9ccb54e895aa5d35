"""A table of numbers whose cells are coloured by their size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from fedmed.reports.palette import INK, LIGHT


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


SLANTED: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}  # names below a table
