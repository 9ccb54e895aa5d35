"""What a report shows of several labels at once: scores of videos, scores by site and label, and labels along time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedmed.reports.label_charts import counts_of, heat_map, label_bars
from fedmed.reports.palette import site_colours
from fedmed.reports.roc import calls_and_hits, name_sites, panels_of, unit_square
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column, read_table
from fedmed.reports.run_report import Chart
from fedmed.reports.site_rows import SiteRow, site_rows
from fedmed.reports.timelines import label_rows, read_labels
from fedmed.reports.video_report import VideoReport
from fedmed.reports.words import fixed, join
from fedmed.training.label_counts import LabelCounts
from fedmed.training.video_recorder import PROBABILITY, TRUTH


def _one_answer(site: str, labels: Sequence[str], counts: LabelCounts, frames: float | None) -> Iterator[str]:
    """Of which tools the model says the same of every frame, though some have them and others do not."""
    rows = list(zip(labels, counts.tp + counts.fp, counts.tp + counts.fn, strict=True))
    always = [
        f"{name} (there in {100 * n / frames:.0f} %)" for name, called, n in rows if frames and n < called == frames
    ]
    never = [f"{name} ({n:,} frames)" for name, called, n in rows if n and not called]
    if always:
        yield f"{site}: called in every one of {frames:,.0f} frames: {join(always)}."
    if never:
        yield f"{site}: there and never called: {join(never)}."


class PresenceReport(VideoReport):
    """A run whose videos each have a score, and whose sites count the frames of each label."""

    told = (
        "Of each video the mean over the tools that are there or called. AP: average precision, which needs no "
        "threshold. All frames: the mean over all tools of the F1 of the site's frames together; a tool that is "
        "neither there nor called counts 0, or, in brackets, not at all."
    )
    columns = {"AP": "ap_mean", "all frames": "pooled_f1_zero"}
    of_video = {"F1": "f1", "AP": "ap", "precision": "precision", "recall": "recall"}
    by_class = (
        "Each tool",
        "Sites send how many frames were rightly called, wrongly called and missed for each tool, and no prediction; "
        "these counts add up. A dash: the tool was neither there nor called. Below, where tables of frames are here, "
        "precision against recall of each tool; a disc is the threshold of 0.5.",
    )
    shown = (
        "Videos along time",
        "The best, the median and the worst video of each site. Of each tool, above in blue when it was there, below "
        "in orange when the model called it.",
    )

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        found = super().cells(run, row)
        if "all frames" in found:
            found["all frames"] += f" ({fixed(row.test.get('pooled_f1_skip'))})"
        return found

    def findings(self, run: Run) -> list[str]:
        """Tools that are called in every frame of a site, and those that are there and never called."""
        labels, counts = counts_of(run)
        frames = {row.name: row.test.get("n_frames") for row in site_rows(run)}
        return [text for site, one in counts.items() for text in _one_answer(site, labels, one, frames[site])]

    def class_charts(self, run: Run) -> dict[str, Chart]:
        """F1 of each label at each site, bars of each label, and precision against recall."""
        labels, counts = counts_of(run)
        if not counts:
            return {}
        found = {
            "labels": Chart(lambda _: heat_map(labels, counts, "tool")),
            "bars": Chart(lambda _: label_bars(labels, counts, "tool")),
        }
        return found | ({"precision_recall": Chart(precision_recall)} if any(map(frame_tables, run.sites)) else {})

    def figure(self, run: Run, site: Site) -> Figure | None:
        """The best, the median and the worst video of a site along time; None where they are not here."""
        pictures = list(site.pictures(read_labels))
        return label_rows(pictures, site.name) if pictures else None


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
