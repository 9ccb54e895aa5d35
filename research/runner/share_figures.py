"""Score against the share of labels: a panel a task, a line an arm, an interval at every point."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from fedmed.reports.palette import site_colours
from fedmed.reports.plots import WIDTH
from research.runner.arm_figures import heading
from research.runner.words_of_tables import percent

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # lines are told apart without their colours too
ROW = 3.3  # inches


def share_figure(
    title: str, arms: Sequence[str], rows: pd.DataFrame, labels: Mapping[str, str], protocols: Mapping[str, str]
) -> Figure:
    """A line of panels a score, a line an ``arm`` in the order of the legend. Draw it within ``style()``.

    ``labels`` and ``protocols``: score and protocol -> what a person reads.
    """
    columns = list(dict.fromkeys(zip(rows["task"], rows["protocol"], strict=True)))
    metrics, shown = rows["metric"].unique(), rows["protocol"].unique()
    drawn = Figure(figsize=(WIDTH, ROW * len(metrics) + 1.1), layout="constrained")
    panels = drawn.subplots(len(metrics), len(columns), squeeze=False, sharex="col", sharey="row")
    colours = site_colours(list(arms))
    for line, metric in zip(panels, metrics, strict=True):
        for axes, (task, protocol) in zip(line, columns, strict=True):
            part = rows[(rows["task"] == task) & (rows["protocol"] == protocol) & (rows["metric"] == metric)]
            _panel(axes, part, arms, colours)
            if axes in panels[0]:
                axes.set_title(f"{task}, {protocol}" if len(shown) > 1 else task)
            if axes in panels[-1]:
                axes.set_xlabel("share of the training labels")
        line[0].set_ylabel(labels[metric])
    words = " and ".join(protocols.get(name, name) for name in shown)
    heading(drawn, title, f"Test list, {words}, last epoch; mean over seeds, bars: 95 % interval over patients")
    handles, names = panels[0][0].get_legend_handles_labels()
    ncols = len(names) if len(names) <= 5 else math.ceil(len(names) / 2)
    drawn.legend(handles, names, loc="outside lower left", ncols=ncols, frameon=False)
    return drawn


def _panel(axes: Axes, rows: pd.DataFrame, arms: Sequence[str], colours: Mapping[str, str]) -> None:
    """Points of different arms stand side by side: at one x their intervals would cover each other."""
    for place, arm in enumerate(arms):
        of_arm = rows[rows["arm"] == arm].sort_values("fraction")
        if of_arm.empty:
            continue
        x = of_arm["fraction"] * 1.045 ** (place - (len(arms) - 1) / 2)
        axes.vlines(x, of_arm["low"], of_arm["high"], color=colours[arm], alpha=0.35, linewidth=1.2)
        line, marker = "-" if place < len(MARKERS) else "--", MARKERS[place % len(MARKERS)]
        axes.plot(
            x,
            of_arm["mean"],
            line,
            color=colours[arm],
            linewidth=1.5,
            label=arm,
            marker=marker,
            markersize=5,
            markeredgewidth=0,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(rows["fraction"].unique())))
    axes.xaxis.set_major_formatter(lambda value, _: percent(round(value, 6)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.tick_params(labelbottom=True)
