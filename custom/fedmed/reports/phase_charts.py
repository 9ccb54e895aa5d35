"""Charts of phases: the colour and the number that each has in every picture, and what was called which."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedmed.reports.cells import draw_counts
from fedmed.reports.palette import MUTED, PAPER, PHASES
from fedmed.reports.plots import WIDTH
from fedmed.training.confusion import Confusion

CELL = (0.46, 0.34)  # inches of a table of counts: width and height of a cell
BESIDE = 0.75  # inches between two tables, for the numbers of phases
CHIP: dict[str, Any] = {"color": PAPER, "fontsize": 8.5, "fontweight": "bold", "ha": "center", "va": "center"}


def phase_colours(phases: Sequence[str]) -> dict[str, str]:
    """Phase -> colour, by its place among the outputs; from the ninth on they repeat."""
    return {name: PHASES[place % len(PHASES)] for place, name in enumerate(phases)}


def spoken(name: str) -> str:
    """A phase as it is said: ``clipping and cutting``."""
    return name.replace("_", " ")


def phase_legend(figure: Figure, phases: Sequence[str], columns: int = 3) -> None:
    """Below all panels: number, name and colour of each phase."""
    colours = phase_colours(phases)
    named = [(f"{place}  {spoken(name)}", colours[name]) for place, name in enumerate(phases, start=1)]
    patches = [Patch(color=colour, linewidth=0, label=label) for label, colour in named]
    figure.legend(handles=patches, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)


def legend_height(phases: Sequence[str], columns: int = 3) -> float:
    """Inches that :func:`phase_legend` takes."""
    return 0.15 + 0.22 * -(-len(phases) // columns)


def confusion_maps(phases: Sequence[str], confusions: Mapping[str, Confusion]) -> Figure:
    """A table a site, before them that of all sites' frames: of each true phase (rows) how many were called which."""
    whole = {"all sites": sum(confusions.values(), Confusion.none(len(phases)))}
    tables = {**whole, **confusions} if len(confusions) > 1 else dict(confusions)
    wide = CELL[0] * len(phases) + BESIDE
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
