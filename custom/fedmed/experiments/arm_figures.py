"""The figure of a table of sites: a row an arm, or the score against a number that the arms differ in."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmed.experiments.arm_lines import ArmFigure, Means, lines, one_deviation
from fedmed.experiments.table_layout import ShownArm
from fedmed.reports.palette import INK, MUTED, site_colours
from fedmed.reports.plots import WIDTH


def arm_figure(info: ArmFigure, means: Mapping[tuple[str, str], Sequence[float]]) -> Figure:
    """Lines if there is an ``x_label``, else a row an arm. Draw it within ``style()``.

    Args:
        info: what is drawn.
        means: (arm, site) -> mean of each seed.
    """
    found = {key: np.array(seeds) for key, seeds in means.items()}
    drawn = dots(info, found) if info.x_label is None else lines(info, found)
    drawn.get_layout_engine().set(h_pad=0.06, w_pad=0.06)
    _heading(drawn, info)
    return drawn


def _heading(drawn: Figure, info: ArmFigure) -> None:
    """Title, and below it what is drawn, both broken where the figure ends."""
    caption = info.caption + (f"; dashed: {info.baseline}" if info.baseline else "")
    title, below = (
        textwrap.wrap(text, round(n * drawn.get_figwidth())) for text, n in ((info.title, 9), (caption, 13))
    )
    space = "\n" * len(below)
    drawn.suptitle("\n".join(title) + space, x=0.008, ha="left", fontsize=12, fontweight="bold")
    top = 1 - (0.10 + 0.21 * len(title)) / drawn.get_figheight()
    drawn.text(0.008, top, "\n".join(below), color=MUTED, va="top", linespacing=1.3)


def dots(info: ArmFigure, means: Means) -> Figure:
    """A panel a site, a row an arm: mean, standard deviation and every seed; the baseline as a line to compare with."""
    rows = _rows(info, means)
    colours = site_colours(list(info.sites))
    drawn = Figure(figsize=(WIDTH, 1.3 + 0.235 * len(rows)), layout="constrained")
    panels = drawn.subplots(1, len(info.sites), sharey=True, squeeze=False)[0]
    drawn.get_layout_engine().set(wspace=0.03)
    for axes, site in zip(panels, info.sites, strict=True):
        axes.set_title(site)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        if (base := means.get((info.baseline or "", site))) is not None:
            axes.axvline(base.mean(), color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
        for place, arm in enumerate(rows):
            if isinstance(arm, ShownArm) and (arm.name, site) in means:
                _dot(axes, place, means[arm.name, site], colours[site])
    _same_scale(panels, info.sites, means)
    panels[0].set_yticks(range(len(rows)), [row.name if isinstance(row, ShownArm) else row for row in rows], color=INK)
    for label, row in zip(panels[0].get_yticklabels(), rows, strict=True):
        if not isinstance(row, ShownArm):
            label.set(color=MUTED, fontweight="bold")
        elif row.name == info.baseline:
            label.set_fontweight("bold")
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    return drawn


def _same_scale(panels: Sequence[Axes], sites: Sequence[str], means: Means) -> None:
    """Let every panel span as much, so that equal distances are equal differences at every site."""
    reach = {}
    for site in sites:
        drawn = [value for (_, at), seeds in means.items() if at == site for value in (*seeds, *one_deviation(seeds))]
        reach[site] = (min(drawn), max(drawn)) if drawn else (0.0, 0.0)
    span = 1.08 * max(0.05, *(high - low for low, high in reach.values()))
    for axes, (low, high) in zip(panels, reach.values(), strict=True):
        axes.set_xlim((low + high - span) / 2, (low + high + span) / 2)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:.2f}")


def _rows(info: ArmFigure, means: Means) -> list[ShownArm | str]:
    """The arms that have scores, each group under its name."""
    rows: list[ShownArm | str] = []
    for group, arms in info.groups:
        shown = [arm for arm in arms if any((arm.name, site) in means for site in info.sites)]
        rows += [group, *shown] if group and shown else shown
    return rows


def _dot(axes: Axes, place: int, seeds: np.ndarray, colour: str) -> None:
    axes.plot(one_deviation(seeds), [place, place], color=colour, linewidth=1.4)
    if len(seeds) > 1:
        axes.scatter(seeds, [place] * len(seeds), s=9, color=colour, alpha=0.4, linewidths=0)
    axes.scatter([seeds.mean()], [place], s=34, color=colour, linewidths=0, zorder=3)
