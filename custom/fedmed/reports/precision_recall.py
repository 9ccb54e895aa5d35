"""Precision against recall of each label at each site, from tables of frames, where they are here."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedmed.engines.video_recorder import PROBABILITY, TRUTH
from fedmed.reports.palette import site_colours
from fedmed.reports.roc import panels_of, unit_square
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column, read_table


def frames_of(run: Run) -> dict[str, pd.DataFrame]:
    """Site -> all frames of its test videos, of the sites whose tables are here."""
    found = {site.name: _frames(site) for site in run.sites}
    return {name: frames for name, frames in found.items() if len(frames)}


def _frames(site: Site) -> pd.DataFrame:
    paths = [] if site.folder is None else sorted((site.folder / "evaluation" / "frames").glob("*.csv"))
    return pd.concat([read_table(path) for path in paths], ignore_index=True) if paths else pd.DataFrame()


def precision_recall(run: Run) -> Figure:
    """One panel a label with a curve a site, all its test frames together; its disc is the threshold of 0.5."""
    sites, colours = frames_of(run), site_colours([site.name for site in run.sites])
    heads = (name for frames in sites.values() for name in frames if name.startswith(PROBABILITY))
    labels = [name.removeprefix(PROBABILITY) for name in dict.fromkeys(heads)]
    figure, panels = panels_of(len(labels), height=3.6)
    for axes, label in zip(panels, labels, strict=True):
        unit_square(axes)
        axes.set_title(label)
        axes.set_xlabel("recall")
        for site, frames in sites.items():
            if f"{TRUTH}{label}" not in frames:
                continue
            true, values = column(frames, f"{TRUTH}{label}") > 0, column(frames, f"{PROBABILITY}{label}")
            if (curve := precision_recall_points(true, values)) is not None:
                axes.plot(*curve, color=colours[site], linewidth=1.8, clip_on=False)
                axes.plot(*_at(true, values, 0.5), color=colours[site], marker="o", markersize=5, clip_on=False)
    panels[0].set_ylabel("precision")
    lines = [Line2D([], [], color=colours[site], linewidth=1.8, label=site) for site in sites]
    figure.legend(handles=lines, loc="outside upper left", ncols=6, frameon=False, labelcolor="linecolor", fontsize=9.5)
    return figure


def precision_recall_points(true: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Recall and precision at every threshold, ties taken together; None where no frame shows the label.

    Args:
        true: (n,) bool.
        values: (n,) float, higher for a more certain label.
    """
    if not true.any():
        return None
    order = np.argsort(-values, kind="stable")
    last = np.r_[np.flatnonzero(np.diff(values[order])), len(values) - 1]
    hits = np.cumsum(true[order])[last]
    return hits / hits[-1], hits / (last + 1)


def _at(true: np.ndarray, values: np.ndarray, threshold: float) -> tuple[list[float], list[float]]:
    """Recall and precision at one threshold, as a point; none where nothing is called."""
    called = values >= threshold
    if not called.any():
        return [], []
    hits = float((called & true).sum())
    return [hits / float(true.sum())], [hits / float(called.sum())]
