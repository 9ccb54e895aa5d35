"""The score against a number that the arms of a table differ in: a line a site."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from fedmed.experiments.table_layout import ShownArm
from fedmed.reports.curves import spread
from fedmed.reports.palette import site_colours
from fedmed.reports.plots import WIDTH

Means = dict[tuple[str, str], np.ndarray]  # (arm, site) -> score of each seed, (seeds,)

Means = dict[tuple[str, str], np.ndarray]  # (arm, site) -> score of each seed, (seeds,)


@dataclass(frozen=True)
class ArmFigure:
    """What a figure shows beside its numbers.

    Attributes:
        title, caption: heading, and below it what is drawn.
        groups: (group, its arms) in their order.
        sites: panels or lines.
        baseline: arm that is drawn as a line to compare with.
        x_label, x_log: axis of a figure over the arms' ``x``; None = a row an arm.
    """

    title: str
    caption: str
    groups: Sequence[tuple[str, Sequence[ShownArm]]]
    sites: Sequence[str]
    baseline: str | None = None
    x_label: str | None = None
    x_log: bool = False


def one_deviation(seeds: np.ndarray) -> tuple[float, float]:
    """Mean - and + one sample standard deviation, which is 0 for one seed."""
    std = seeds.std(ddof=1) if len(seeds) > 1 else 0.0
    return float(seeds.mean() - std), float(seeds.mean() + std)


def lines(info: ArmFigure, means: Means) -> Figure:
    """The score against the arms' ``x``: a line a site, a band of one standard deviation, the baseline dashed."""
    colours = site_colours(list(info.sites))
    drawn = Figure(figsize=(WIDTH * 0.72, 4.2), layout="constrained")
    axes = drawn.subplots()
    arms = sorted((arm for _, own in info.groups for arm in own if arm.x is not None), key=lambda arm: arm.x)
    ends = []
    for site in info.sites:
        shown = [(arm.x, means[arm.name, site]) for arm in arms if (arm.name, site) in means]
        if shown:
            _band(axes, shown, colours[site])
            ends.append((float(shown[-1][1].mean()), site))
        if (base := means.get((info.baseline or "", site))) is not None:
            axes.axhline(base.mean(), color=colours[site], linewidth=0.9, linestyle=(0, (4, 2)))
    _x_axis(axes, info, [arm.x for arm in arms if any((arm.name, site) in means for site in info.sites)])
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    _name_ends(axes, ends, colours)
    return drawn


def _band(axes: Axes, shown: list[tuple[float, np.ndarray]], colour: str) -> None:
    x = [place for place, _ in shown]
    low, high = np.array([one_deviation(seeds) for _, seeds in shown]).T
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, (low + high) / 2, color=colour, linewidth=1.8, marker="o", markersize=4.5, markeredgewidth=0)
    for place, seeds in shown:
        axes.scatter([place] * len(seeds), seeds, s=8, color=colour, alpha=0.4, linewidths=0)


def _x_axis(axes: Axes, info: ArmFigure, xs: list[float]) -> None:
    """A tick at each arm's x."""
    axes.set_xlabel(info.x_label)
    if info.x_log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(xs))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))


def _short(value: float) -> str:
    """``0.5``, ``20``, ``1e-4``: a power of ten only where zeros would have to be counted."""
    if value and abs(value) < 1e-3:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:g}"


def _name_ends(axes: Axes, ends: list[tuple[float, str]], colours: dict[str, str]) -> None:
    """Name each line at its right end, labels moved apart where they would touch."""
    low, high = axes.get_ylim()
    text: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
    places = spread([(value - low) / (high - low) for value, _ in ends], gap=0.06)
    for (_, site), place in zip(ends, places, strict=True):
        axes.annotate(site, (1.0, place), (4, 0), color=colours[site], fontsize=9, fontweight="bold", **text)
