"""Precision against recall of each label at each site, from tables of frames, where they are here."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedmed.reports.palette import site_colours
from fedmed.reports.roc import calls_and_hits, name_sites, panels_of, unit_square
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column, read_table
from fedmed.training.video_recorder import PROBABILITY, TRUTH


def frames_of(run: Run) -> dict[str, pd.DataFrame]:
    """Site -> all frames of its test videos, of the sites whose tables are here."""
    tables = {site.name: frame_tables(site) for site in run.sites}
    return {name: pd.concat(map(read_table, paths), ignore_index=True) for name, paths in tables.items() if paths}


def frame_tables(site: Site) -> list[Path]:
    """Tables of the frames of a site's test videos."""
    return [] if site.folder is None else sorted((site.folder / "evaluation" / "frames").glob("*.csv"))


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
                if point := _at(true, values, 0.5):
                    axes.plot(*point, color=colours[site], marker="o", markersize=5, clip_on=False)
    panels[0].set_ylabel("precision")
    name_sites(figure, sites, colours)
    return figure


def precision_recall_points(true: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Recall and precision at every threshold, ties taken together; None where no frame shows the label.

    Args:
        true: (n,) bool.
        values: (n,) float, higher for a more certain label.
    """
    if not true.any():
        return None
    called, hits = calls_and_hits(true, values)
    return hits / hits[-1], hits / called


def _at(true: np.ndarray, values: np.ndarray, threshold: float) -> tuple[float, float] | None:
    """Recall and precision at one threshold; None where nothing is called.

    A line without a point, which is not clipped, would lie at the figure's corner for the layout.
    """
    called = values >= threshold
    if not called.any():
        return None
    hits = float((called & true).sum())
    return hits / float(true.sum()), hits / float(called.sum())
