"""Bars of each label at each site: some rows beside models of one site and of pooled data."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedmed.reports.palette import LIGHT, MUTED
from fedmed.reports.plots import WIDTH
from research.runner.arm_figures import heading
from research.runner.label_scores import ALTRUISTIC, LabelScores
from research.runner.words_of_tables import several


def label_bars(title: str, scores: LabelScores, rows: Sequence[str]) -> Figure:
    """F1 of each label, a panel a site, a bar a row: the mean over variants and seeds, a line from the lowest to the
    highest seed. Where a label was neither there nor called, F1 counts 0.
    """
    drawn = Figure(figsize=(WIDTH, 1.6 + 1.5 * len(scores.sites)), layout="constrained")
    panels = drawn.subplots(len(scores.sites), 1, sharex=True, squeeze=False)[:, 0]
    of_row = {row: np.mean([scores.values(row, name) for name in scores.variants], axis=0) for row in rows}  # (S, K, C)
    width, at = 0.82 / len(rows), np.arange(len(scores.labels))
    for site, (axes, name) in enumerate(zip(panels, scores.sites, strict=True)):
        for place, (row, values) in enumerate(of_row.items()):
            heights, where = values[:, site], at + width * (place - len(rows) / 2 + 0.5)
            axes.bar(where, heights.mean(0), width * 0.9, color=LIGHT[place % len(LIGHT)], linewidth=0, label=row)
            axes.vlines(where, heights.min(0), heights.max(0), color=MUTED, linewidth=0.9)
        axes.set_title(name)
        axes.set(ylim=(0, 1))
        axes.grid(visible=False, axis="x")
    panels[-1].set_xticks(at, [label.replace("_", " ") for label in scores.labels])
    handles = panels[0].get_legend_handles_labels()
    drawn.legend(*handles, loc="outside lower center", ncols=min(6, len(rows)), frameon=False)
    seeds = several([len(scores.seeds)], "seed")
    words = f"F1, means over networks and {seeds}, of which lines join the lowest and the highest"
    heading(drawn, title, f"{words}; {ALTRUISTIC}: of all sites' frames")
    return drawn
