"""The figure of a table of sites: a row an arm, or the score against a number that the arms differ in."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from fedmed.reports.curves import end_labels
from fedmed.reports.palette import INK, MUTED, site_colours
from fedmed.reports.plots import WIDTH
from research.runner.table_layout import ShownArm, below_groups

Means = dict[tuple[str, str], np.ndarray]  # (arm, site) -> score of each seed, (seeds,)


@dataclass(frozen=True)
class ArmFigure:
    """Labels that a figure shows beside its numbers."""

    title: str
    caption: str  # below the title: what is drawn
    arms: Sequence[ShownArm]  # in their order, those of a group together
    sites: Sequence[str]  # panels or lines
    baseline: str | None = None  # arm that is drawn as a line to compare with
    x_label: str | None = None  # of the axis of a figure over the arms' ``x``; None = a row an arm
    x_log: bool = False


def arm_figure(info: ArmFigure, means: Mapping[tuple[str, str], Sequence[float] | np.ndarray]) -> Figure:
    """Lines if there is an ``x_label``, else a row an arm. Draw it within ``style()``.

    ``means``: (arm, site) -> mean of each seed.
    """
    values = {key: np.array(seeds) for key, seeds in means.items()}
    drawn = dots(info, values) if info.x_label is None else lines(info, values)
    heading(drawn, info.title, info.caption + (f"; dashed: {info.baseline}" if info.baseline else ""))
    return drawn


def heading(drawn: Figure, title: str, caption: str) -> None:
    """Title, and below it what is drawn, both broken where the figure ends."""
    above, below = (textwrap.wrap(text, round(n * drawn.get_figwidth())) for text, n in ((title, 9), (caption, 13)))
    drawn.suptitle("\n".join(above) + "\n" * len(below), x=0.008, ha="left", fontsize=12, fontweight="bold")
    top = 1 - (0.10 + 0.21 * len(above)) / drawn.get_figheight()
    drawn.text(0.008, top, "\n".join(below), color=MUTED, va="top", linespacing=1.3)


def dots(info: ArmFigure, means: Means) -> Figure:
    """A panel a site, a row an arm: mean, standard deviation and every seed; the baseline as a line to compare with."""
    rows = below_groups([arm for arm in info.arms if any((arm.name, site) in means for site in info.sites)])
    colours = site_colours(list(info.sites))
    drawn = Figure(
        figsize=(WIDTH, 1.3 + 0.235 * len(rows)), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06, wspace=0.03)
    )
    panels = drawn.subplots(1, len(info.sites), sharey=True, squeeze=False)[0]
    for axes, site in zip(panels, info.sites, strict=True):
        axes.set_title(site)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        if (base := means.get((info.baseline or "", site))) is not None:
            axes.axvline(base.mean(), color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
        for place, arm in enumerate(rows):
            if not isinstance(arm, str) and (arm.name, site) in means:
                _dot(axes, place, means[arm.name, site], colours[site])
    _same_scale(panels, info.sites, means)
    panels[0].set_yticks(range(len(rows)), [row if isinstance(row, str) else row.name for row in rows], color=INK)
    for label, row in zip(panels[0].get_yticklabels(), rows, strict=True):
        if isinstance(row, str):
            label.set(color=MUTED, fontweight="bold")
        elif row.name == info.baseline:
            label.set_fontweight("bold")
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    return drawn


def _same_scale(panels: Sequence[Axes], sites: Sequence[str], means: Means) -> None:
    """Let every panel span as much: equal distances are equal differences."""
    reach = {}
    for site in sites:
        drawn = [value for (_, at), seeds in means.items() if at == site for value in (*seeds, *_one_deviation(seeds))]
        reach[site] = (min(drawn), max(drawn)) if drawn else (0.0, 0.0)
    span = 1.08 * max(0.05, *(high - low for low, high in reach.values()))
    for axes, (low, high) in zip(panels, reach.values(), strict=True):
        axes.set_xlim((low + high - span) / 2, (low + high + span) / 2)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:.2f}")


def _dot(axes: Axes, place: int, seeds: np.ndarray, colour: str) -> None:
    axes.plot(_one_deviation(seeds), [place, place], color=colour, linewidth=1.4)
    if len(seeds) > 1:
        axes.scatter(seeds, [place] * len(seeds), s=9, color=colour, alpha=0.4, linewidths=0)
    axes.scatter([seeds.mean()], [place], s=34, color=colour, linewidths=0, zorder=3)


def _one_deviation(seeds: np.ndarray) -> tuple[float, float]:
    """Mean - and + one sample standard deviation, which is 0 for one seed."""
    std = seeds.std(ddof=1) if len(seeds) > 1 else 0.0
    return float(seeds.mean() - std), float(seeds.mean() + std)


def lines(info: ArmFigure, means: Means) -> Figure:
    """The score against the arms' ``x``: a line a site, a band of one standard deviation, the baseline dashed."""
    colours = site_colours(list(info.sites))
    drawn = Figure(figsize=(WIDTH * 0.72, 4.2), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06))
    axes = drawn.subplots()
    places = sorted((arm.x, arm.name) for arm in info.arms if arm.x is not None)
    ends = []
    for site in info.sites:
        shown = [(x, means[name, site]) for x, name in places if (name, site) in means]
        if shown:
            _band(axes, shown, colours[site])
            ends.append((float(shown[-1][1].mean()), site, colours[site]))
        if (base := means.get((info.baseline or "", site))) is not None:
            axes.axhline(base.mean(), color=colours[site], linewidth=0.9, linestyle=(0, (4, 2)))
    _x_axis(axes, info, [x for x, name in places if any((name, site) in means for site in info.sites)])
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    end_labels(axes, ends)
    return drawn


def _band(axes: Axes, shown: list[tuple[float, np.ndarray]], colour: str) -> None:
    x = [place for place, _ in shown]
    low, high = np.array([_one_deviation(seeds) for _, seeds in shown]).T
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, (low + high) / 2, color=colour, linewidth=1.8, marker="o", markersize=4.5, markeredgewidth=0)
    for place, seeds in shown:
        axes.scatter([place] * len(seeds), seeds, s=8, color=colour, alpha=0.4, linewidths=0)


def _x_axis(axes: Axes, info: ArmFigure, xs: list[float]) -> None:
    """A tick at each arm's x."""
    axes.set_xlabel(info.x_label or "")
    if info.x_log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(xs))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))


def _short(value: float) -> str:
    """``0.5``, ``20``, ``1e-4``: a power of ten only where zeros would have to be counted."""
    power = value and abs(value) < 1e-3
    return np.format_float_scientific(value, trim="-", exp_digits=1) if power else f"{value:g}"
