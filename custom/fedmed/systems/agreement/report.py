"""Part of a report: how much sites without labels moved the model, and what labelled sites saw of it."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.reports.palette import INK, LIGHT, MUTED
from fedmed.reports.plots import WIDTH, round_axis
from fedmed.reports.run_contents import Run
from fedmed.reports.run_report import Chart

CAPTION = (
    "What sites without labels add to the mean of the labelled ones. In each round the labelled sites score the model "
    "with it and without it (left); while it does harm, the server halves the weight that it gives to it, and raises "
    "it slowly afterwards (right). Strength is what their part is multiplied by in the end, this weight included."
)
LEAST_SPAN = 0.1  # of the score's axis


class AddedWeightSection:
    """The part of a method in which labelled sites judge what the others add; see ``systems/agreement/server.py``."""

    def charts(self, run: Run) -> dict[str, Chart]:
        return {"added_weight": Chart(added_weight, CAPTION)} if _of(run, "trust") else {}

    def columns(self, run: Run) -> dict[str, dict[str, float]]:
        return {}

    def notes(self, run: Run) -> list[str]:
        weights = _of(run, "trust")
        return [f"The validation-gated weight of the last round was {weights[-1][1]:.0%}."] if weights else []


def added_weight(run: Run) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.2))
    figure.set_layout_engine("constrained", wspace=0.06)
    scores, weight = figure.subplots(1, 2)
    scores.set_title(f"Mean validation {run.score.label} at labelled sites")
    _lines(scores, run, {"score_without": ("without", MUTED), "score_with": ("with what is added", LIGHT[0])}, 0)
    low, high = scores.get_ylim()  # differences that a few cases cannot tell must not look large
    more = max(0.0, LEAST_SPAN - (high - low)) / 2
    scores.set_ylim(low - more, high + more)
    weight.set_title("Weight of what is added")
    _lines(weight, run, {"strength": ("strength", LIGHT[1]), "trust": ("validation gate", INK)}, 1)
    highest = max((weight for _, weight in _of(run, "strength")), default=1.0)  # up to 2 of a study
    weight.set_ylim(-0.03, 1.03 * max(1.0, highest))
    return figure


def _lines(axes: Axes, run: Run, names: dict[str, tuple[str, str]], start: int) -> None:
    """A line for each number of the server's rule; ``start`` is the round in which the first one is drawn.

    The first line is wide and pale, so that it is seen where the second, on top of it, is equal.
    """
    looks: list[dict[str, Any]] = [{"linewidth": 6.5, "alpha": 0.4, "solid_capstyle": "round"}, {"marker": "o"}]
    for (name, (label, colour)), look in zip(names.items(), looks, strict=True):
        if points := _of(run, name):
            rounds, values = zip(*points, strict=True)
            axes.plot([round + start for round in rounds], values, color=colour, label=label, markersize=3, **look)
    axes.set_xlabel("round" if start else "rounds behind the model")
    round_axis(axes, run, start)
    if axes.lines:
        axes.legend(frameon=False)


def _of(run: Run, name: str) -> list[tuple[int, float]]:
    """(Round counted from 0, number) of the rounds that have it."""
    return [(line.index, line.facts[name]) for line in run.rounds if name in line.facts]
