"""Figures of scores of several labels: who is good where, over the rounds, and label by label."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.reports.palette import INK, LIGHT
from fedmed.reports.plots import WIDTH
from fedmed.reports.sheet import SLANTED, draw_cells
from fedmed.reports.words import NOTHING
from research.runner.arm_figures import heading
from research.runner.label_scores import ALTRUISTIC, EGOISTIC, VIEWS, LabelScores
from research.runner.score_kinds import Floats
from research.runner.words_of_tables import several

OVERALL = "all frames"
DASHES = ("-", (0, (4, 1.6)))  # of the first eight lines, and of those that have their colours again


def score_matrix(title: str, scores: LabelScores, personal: Sequence[str], absent: str) -> Figure:
    """Mean F1 of each model at each site and of all frames: a site's own models first (Markert 2022, Fig. 6.1).

    A model's score at the site that trained it alone is bold. A row of ``personal`` models has each site's at home, and
    last the mean weighted by training images.
    """
    tables = {variant: _matrix(scores, variant, personal, absent) for variant in scores.variants}
    drawn = Figure(figsize=(WIDTH, 1.7 + 0.3 * max(map(len, tables.values()))), layout="constrained")
    panels = drawn.subplots(1, len(tables), sharey=len({tuple(one) for one in tables.values()}) == 1, squeeze=False)[0]
    for axes, (variant, table) in zip(panels, tables.items(), strict=True):
        values = np.stack(list(table.values()))
        bold = np.zeros_like(values, bool)
        if scores.have(VIEWS):
            np.fill_diagonal(bold[: len(scores.sites)], val=True)
        _cells(axes, values, list(table), [*scores.sites, OVERALL], bold)
        axes.set_title(variant)
    left_out = "counts 0" if absent == "zero" else "is left out"
    caption = (
        f"mean F1 over the labels and {several([len(scores.seeds)], 'seed')}; columns: whose test frames; a label "
    )
    heading(drawn, title, f"{caption}that is neither there nor called {left_out}")
    return drawn


def round_lines(title: str, scores: LabelScores, rows: Sequence[str], metrics: Mapping[str, str]) -> Figure:
    """Numbers of the rounds, means over sites and seeds: a row of panels a variant, a line a row (Fig. 6.3 to 6.5)."""
    drawn, panels = _grid(len(scores.variants), len(metrics))
    for line, variant in zip(panels, scores.variants, strict=True):
        for axes, (metric, label) in zip(line, metrics.items(), strict=True):
            axes.set_title("\n".join([*wrap(label, 24), variant]), fontsize=9)
            there = [row for row in rows if row in scores.rows(variant)]
            values = {row: mean_known(scores.rounds(row, variant, metric), (0, 2)) for row in there}
            _lines(axes, values)
    _legend(drawn, panels)
    heading(drawn, title, f"means over sites and {several([len(scores.seeds)], 'seed')}; the number of the round below")
    return drawn


def site_lines(title: str, scores: LabelScores, row: str, metric: str, label: str) -> Figure:
    """A number of each site's rounds, a panel a variant (Fig. 6.6)."""
    drawn, panels = _grid(1, len(scores.variants))
    for axes, variant in zip(panels[0], scores.variants, strict=True):
        axes.set_title(f"{label}, {variant}", fontsize=9)
        values = mean_known(scores.rounds(row, variant, metric), (0,))
        _lines(axes, dict(zip(scores.sites, values.T, strict=True)))
    _legend(drawn, panels)
    heading(drawn, title, f"{row}; mean over {several([len(scores.seeds)], 'seed')}; the number of the round below")
    return drawn


def compared_rows(title: str, scores: LabelScores, rows: Sequence[str]) -> Figure:
    """Bars of mean F1 at each site and over all, a panel a variant (Fig. A.2)."""
    drawn, panels = _grid(1, len(scores.variants))
    for axes, variant in zip(panels[0], scores.variants, strict=True):
        axes.set_title(variant, fontsize=9)
        width = 0.8 / len(rows)
        for place, row in enumerate(rows):
            of_sites = scores.values(row, variant).mean((0, 2))
            values, at = (
                [*of_sites, of_sites.mean()],
                np.arange(len(of_sites) + 1) + width * (place - len(rows) / 2 + 0.5),
            )
            axes.bar(at, values, width * 0.92, color=LIGHT[place % len(LIGHT)], linewidth=0, label=row)
        axes.set_xticks(range(len(scores.sites) + 1), [*scores.sites, "mean"])
        axes.set(ylim=(0, 1))
        axes.grid(visible=False, axis="x")
    _legend(drawn, panels)
    heading(drawn, title, f"mean F1 over the labels and {several([len(scores.seeds)], 'seed')}")
    return drawn


def label_cells(title: str, scores: LabelScores, rows: Sequence[str]) -> Figure:
    """F1 of each label at each site, a panel a site, means over variants and seeds (Fig. A.4)."""
    across = 2
    down = -(-len(scores.sites) // across)
    drawn = Figure(figsize=(WIDTH, 1.2 + down * (1.0 + 0.27 * len(rows))), layout="constrained")
    panels = list(drawn.subplots(down, across, squeeze=False).flat)
    values = {row: np.mean([scores.values(row, name).mean(0) for name in scores.variants], axis=0) for row in rows}
    for axes, (place, site) in zip(panels, enumerate(scores.sites), strict=False):
        table = np.stack([values[row][place] for row in rows])
        best = table == np.nanmax(table, axis=0, initial=-1)
        _cells(axes, table, list(rows), scores.labels, best)
        axes.set_title(site)
    for axes in panels[len(scores.sites) :]:
        axes.set_axis_off()
    words = f"F1, means over networks and {several([len(scores.seeds)], 'seed')}; {ALTRUISTIC}: of all sites' frames; "
    heading(drawn, title, f"{words}bold: the best of a column")
    return drawn


def _matrix(scores: LabelScores, variant: str, personal: Sequence[str], absent: str) -> dict[str, Floats]:
    """Row -> mean F1 at each site and of all frames, (K + 1,)."""
    heat, rows = {}, scores.rows(variant)
    if EGOISTIC in rows:
        for site, arm in zip(scores.sites, scores.models(EGOISTIC, variant), strict=True):
            heat[f"{site} alone"] = _at_sites(scores, [arm] * len(scores.sites), absent)
    for row in [row for row in rows if row not in VIEWS]:
        heat[row] = _at_sites(scores, scores.models(row, variant), absent)
        if row in personal:
            heat[row][-1] = mean_known(scores.overall(row, variant, True, absent), (0, 1))
    return heat


def _at_sites(scores: LabelScores, arms: Sequence[str], absent: str) -> Floats:
    empty = np.full(len(scores.labels), np.nan)
    means = []
    for seed in scores.seeds:
        counts = [scores.counts(arm, seed, site) for arm, site in zip(arms, scores.sites, strict=True)]
        f1 = [empty if numbers is None else numbers.f1(absent) for numbers in [*counts, scores.total(arms[0], seed)]]
        means.append(mean_known(np.stack(f1), (1,)))
    return np.asarray(np.mean(means, axis=0))


def mean_known(values: Floats, axes: tuple[int, ...]) -> Floats:
    """Mean of what is a number; NaN where nothing is."""
    known = np.isfinite(values)
    number = known.sum(axis=axes)
    return np.asarray(np.where(known, values, 0).sum(axis=axes) / np.where(number, number, np.nan))


def _cells(axes: Axes, values: Floats, rows: Sequence[str], columns: Sequence[str], bold: np.ndarray) -> None:
    texts = [[f"{value:.2f}" if np.isfinite(value) else NOTHING for value in row] for row in values]
    draw_cells(axes, texts, values, bold)
    axes.set_xticks(range(len(columns)), columns, **SLANTED)
    axes.set_yticks(range(len(rows)), rows, color=INK)


def _grid(down: int, across: int) -> tuple[Figure, np.ndarray]:
    drawn = Figure(figsize=(WIDTH, 1.4 + 2.5 * down), layout="constrained")
    return drawn, drawn.subplots(down, across, squeeze=False)


def _lines(axes: Axes, values: Mapping[str, Floats]) -> None:
    for place, (name, series) in enumerate(values.items()):
        again, colour = divmod(place, len(LIGHT))
        look: dict[str, Any] = {"color": LIGHT[colour], "linestyle": DASHES[again % len(DASHES)], "linewidth": 1.6}
        axes.plot(range(1, len(series) + 1), series, label=name, **look)


def _legend(drawn: Figure, panels: np.ndarray) -> None:
    """Each name once, below all."""
    named = {label: line for axes in panels.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    drawn.legend(named.values(), named.keys(), loc="outside lower center", ncols=min(6, len(named) or 1), frameon=False)
