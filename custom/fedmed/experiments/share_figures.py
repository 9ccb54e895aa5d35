"""Score against the share of labels: a panel a task, a line an arm, an interval at every point."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from fedmed.experiments.words_of_tables import percent
from fedmed.reports.palette import MUTED, site_colours
from fedmed.reports.plots import WIDTH

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # lines are told apart without their colours too
ROW = 3.3  # inches


@dataclass(frozen=True)
class ShareRow:
    """One arm in one setting by one score.

    Attributes:
        group to model: where.
        metric: name of the score.
        n_seeds: what it is the mean of.
        mean, std: over seeds; std None for one.
        low, high: 95 % interval of the mean over patients.
    """

    group: str
    arm: str
    task: str
    list: str
    protocol: str
    fraction: float
    model: str
    metric: str
    n_seeds: int
    mean: float
    std: float | None
    low: float
    high: float


def share_figure(
    title: str, arms: Sequence[str], rows: Sequence[ShareRow], labels: Mapping[str, str], protocols: Mapping[str, str]
) -> Figure:
    """Internal tests, last epoch, a line of panels a score. Draw it within ``style()``.

    Args:
        title: heading.
        arms: lines, in the order of the legend.
        rows: of the table; those of other arms are left out.
        labels: score -> what a person reads.
        protocols: the same for protocols.
    """
    shown = [r for r in rows if r.arm in arms and (r.list, r.model) == ("internal", "last")]
    columns = list(dict.fromkeys((row.task, row.protocol) for row in shown))
    metrics = list(dict.fromkeys(row.metric for row in shown))
    drawn = Figure(figsize=(WIDTH, ROW * len(metrics) + 1.1), layout="constrained")
    panels = drawn.subplots(len(metrics), len(columns), squeeze=False, sharex="col", sharey="row")
    colours, several = site_colours(list(arms)), len({protocol for _, protocol in columns}) > 1
    for line, metric in zip(panels, metrics, strict=True):
        for axes, (task, protocol) in zip(line, columns, strict=True):
            own = [row for row in shown if (row.task, row.protocol, row.metric) == (task, protocol, metric)]
            _panel(axes, own, arms, colours)
            if axes in panels[0]:
                axes.set_title(f"{task}, {protocol}" if several else task)
            if axes in panels[-1]:
                axes.set_xlabel("share of the training labels")
        line[0].set_ylabel(labels[metric])
    named = " and ".join(protocols.get(name, name) for name in dict.fromkeys(protocol for _, protocol in columns))
    _heading(drawn, title, named, panels[0][0])
    return drawn


def _panel(axes: Axes, rows: Sequence[ShareRow], arms: Sequence[str], colours: dict[str, str]) -> None:
    """Points of different arms stand side by side: at one x their intervals would cover each other."""
    fractions = sorted({row.fraction for row in rows})
    for place, arm in enumerate(arms):
        own = sorted((row for row in rows if row.arm == arm), key=lambda row: row.fraction)
        if not own:
            continue
        shift = 1.045 ** (place - (len(arms) - 1) / 2)
        x, y = [row.fraction * shift for row in own], [row.mean for row in own]
        axes.vlines(
            x, [row.low for row in own], [row.high for row in own], color=colours[arm], alpha=0.35, linewidth=1.2
        )
        style = {"marker": MARKERS[place % len(MARKERS)], "markersize": 5, "markeredgewidth": 0}
        line = "-" if place < len(MARKERS) else "--"
        axes.plot(x, y, color=colours[arm], linewidth=1.5, linestyle=line, label=arm, **style)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(fractions))
    axes.xaxis.set_major_formatter(lambda value, _: percent(round(value, 6)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.tick_params(labelbottom=True)


def _heading(drawn: Figure, title: str, protocols: str, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    caption = f"Test list, {protocols}, last epoch; mean over seeds, bars: 95 % interval over patients"
    heading = "\n".join(textwrap.wrap(title, round(9 * drawn.get_figwidth())))
    drawn.suptitle(f"{heading}\n", x=0.008, ha="left", fontsize=12, fontweight="bold")
    top = 1 - (0.12 + 0.2 * (heading.count("\n") + 1)) / drawn.get_figheight()
    drawn.text(0.008, top, caption, color=MUTED, va="top")
    columns = len(labels) if len(labels) <= 5 else math.ceil(len(labels) / 2)
    drawn.legend(handles, labels, loc="outside lower left", ncols=columns, frameon=False)
