"""Reports of runs with videos: phases, and presence of tools."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from fedmed.reports import plots
from fedmed.reports.label_charts import (
    confusion_maps,
    confusions_of,
    counts_of,
    heat_map,
    label_bars,
    phase_colours,
    spoken,
)
from fedmed.reports.palette import TRUTH_INK, site_colours
from fedmed.reports.plots import panels_of
from fedmed.reports.roc import calls_and_hits, name_sites, unit_square
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column, number, read_table
from fedmed.reports.run_report import Chart, Images, LegendEntry
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_pictures import feature_figure, feature_pictures
from fedmed.reports.site_rows import SiteRow, site_rows
from fedmed.reports.timelines import (
    MODEL_INKS,
    label_rows,
    model_ribbons,
    model_rows,
    read_labels,
    read_phases,
    ribbons,
)
from fedmed.reports.words import NOTHING, fixed, join
from fedmed.training.label_counts import LabelCounts
from fedmed.training.video_recorder import PROBABILITY, TRUTH

WIDE = ("precision", "recall")  # columns for which a terminal has no room


class VideoReport(ScoredReport):
    """A run whose videos each have a score.

    Attributes:
        scores_note: sentences on the scores of the table of sites.
        columns: head of a column beside the score -> number of a site's test.
        by_class: heading above the charts of each class, and what they show.
        shown: heading above what is drawn of single videos, and what that shows.
        of_video: head of a column of the table of a site's videos -> column of ``cases.csv``; empty: there is none.
        features: heading above :meth:`further_charts`, and what they show.
    """

    template, images, has_role = "videos.html.j2", "videos", False
    scores_note: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    by_class: ClassVar[tuple[str, str]]
    shown: ClassVar[tuple[str, str]]
    of_video: ClassVar[Mapping[str, str]] = {}
    features: ClassVar[tuple[str, str]] = ("", "")

    def class_charts(self, run: Run) -> dict[str, Chart]:
        """With the sites' numbers at hand, charts of each class."""
        raise NotImplementedError

    def further_charts(self, run: Run) -> dict[str, Chart]:
        """Charts below those of single videos."""
        return {}

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        others = {head: fixed(row.test.get(key)) for head, key in self.columns.items() if key != run.score.test}
        return {run.score.label: fixed(row.mean), "± std": fixed(row.std), **others}

    def charts(self, run: Run) -> dict[str, Chart]:
        return super().charts(run) | self.class_charts(run) | self.further_charts(run)

    def values(self, run: Run) -> dict[str, Any]:
        figures = [(site, self.figure(run, site)) for site in run.sites]
        drawn = [(site, Markup(plots.svg(one, f"videos{n}")) if one else "") for n, (site, one) in enumerate(figures)]
        names = {"class_charts": list(self.class_charts(run)), "further_charts": list(self.further_charts(run))}
        return super().values(run) | {"drawn": drawn, "videos": self.videos(run), **names}

    def videos(self, run: Run) -> list[tuple[str, str, str, dict[str, str]]]:
        """Every test video that is listed here, the best of a site first: site, name, frames, scores by head."""
        listed = [site for site in run.sites if self.of_video and run.score.name in site.cases]
        return [row for site in listed for row in self._videos(site, run.score.name)]

    def _videos(self, site: Site, score: str) -> Iterator[tuple[str, str, str, dict[str, str]]]:
        scores = {head: column(site.cases, name) for head, name in self.of_video.items() if name in site.cases}
        for place in np.argsort(-column(site.cases, score), kind="stable").tolist():
            case, cells = site.cases.iloc[place], {head: fixed(number(float(of[place]))) for head, of in scores.items()}
            yield site.name, case["case"], case.get("n_frames", NOTHING), cells


class PhasesReport(VideoReport):
    """A run whose videos each have a score, and whose sites count which phase was taken for which."""

    scores_note = (
        "Of each video the mean over the phases that occur in its truth or in what the model called; a phase that is "
        "never called has precision 0, one that never occurs has recall 0. Accuracy is the share of a video's frames."
    )
    columns = {"F1": "f1_mean", "accuracy": "accuracy_mean", "precision": "precision_mean", "recall": "recall_mean"}
    of_video = {"F1": "f1", "accuracy": "accuracy", "precision": "precision", "recall": "recall"}
    by_class = (
        "Each phase",
        "Sites send how many frames of each phase were called which, and no prediction; these counts add up. A dash: "
        "the phase neither occurred nor was called. Below, true phases are rows; a cell's colour is its share of the "
        "frames of its row, and F1 is of all frames together, where the table above has the mean over videos.",
    )
    shown = (
        "Videos along time",
        "The best, the median and the worst video of each site: above the true phases, below those that the model "
        "called.",
    )
    case_note = "Of each video the true phases along time, below them those that each model called."
    features = (
        "How the model sees frames",
        "Frames spread over the test videos of each site. Left, a dot is a frame, at the first two principal "
        "components of its features, coloured by its true phase; each panel has components and a scale of its own. "
        "Right, the first two videos of the site's list: the bluer, the more alike two frames are (cosine of their "
        "features, on the panel's own scale). A dot marks which frame of the second video is most like a frame of the "
        "first one; the heading says for how many frames of both that one is of the same phase.",
    )

    def screen_cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        return {head: text for head, text in self.cells(run, row).items() if head not in WIDE}

    def findings(self, run: Run) -> list[str]:
        """Sites at which every frame is called one phase."""
        phases, confusions = confusions_of(run)
        return [text for site, one in confusions.items() if (text := _one_called(site, phases, one.table))]

    def class_charts(self, run: Run) -> dict[str, Chart]:
        phases, confusions = confusions_of(run)
        if not confusions:
            return {}
        counts = {site: one.counts for site, one in confusions.items()}
        return {
            "phases": Chart.of(heat_map, phases, counts, "phase"),
            "confusion": Chart.of(confusion_maps, phases, confusions),
        }

    def further_charts(self, run: Run) -> dict[str, Chart]:
        pictures = {site.name: feature_pictures(site) for site in run.sites}
        return {f"features_{name}": Chart.of(feature_figure, seen, name) for name, seen in pictures.items() if seen}

    def figure(self, run: Run, site: Site) -> Figure | None:
        pictures = list(site.pictures(read_phases))
        return ribbons(pictures, site.name) if pictures else None

    def case_picture(self, run: Run, models: Mapping[str, Path], name: str, images: Images | None) -> Markup:
        """The phases of a video along time: the true ones, and below them those that each model called."""
        return _wide(model_ribbons({title: read_phases(path, title) for title, path in models.items()}), name)

    def case_legend(self, run: Run) -> list[LegendEntry]:
        colours = phase_colours([one.name for one in run.classes])
        return [LegendEntry(f"{n}  {spoken(name)}", ink) for n, (name, ink) in enumerate(colours.items(), start=1)]


def _wide(figure: Figure, name: str) -> Markup:
    """A chart as wide as the page; ``name``: unlike all others of it."""
    return Markup('<figure class="wide">{}</figure>').format(Markup(plots.svg(figure, name)))


def _one_called(site: str, phases: Sequence[str], table: np.ndarray) -> str:
    """Say that all frames are called one phase, by the counts of true (rows) and called phases; else empty."""
    called = np.flatnonzero(table.sum(axis=0))
    if len(called) != 1 or table.sum() < 2:
        return ""
    right, frames, name = int(table[called[0], called[0]]), int(table.sum()), spoken(phases[called[0]])
    share = f"{100 * right / frames:.0f} %"
    return (
        f"{site}: the model calls all {frames:,} frames '{name}'. {right:,} of them are ({share}): "
        "the accuracy is that of a model that looks at no frame."
    )


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

    scores_note = (
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
    case_note = "Of each video when a tool was there, and below when each model called it; other tools are left out."

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        cells = super().cells(run, row)
        if "all frames" in cells:
            cells["all frames"] += f" ({fixed(row.test.get('pooled_f1_skip'))})"
        return cells

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
        charts = {
            "labels": Chart.of(heat_map, labels, counts, "tool"),
            "bars": Chart.of(label_bars, labels, counts, "tool"),
        }
        return charts | ({"precision_recall": Chart(precision_recall)} if any(map(frame_tables, run.sites)) else {})

    def figure(self, run: Run, site: Site) -> Figure | None:
        pictures = list(site.pictures(read_labels))
        return label_rows(pictures, site.name) if pictures else None

    def case_picture(self, run: Run, models: Mapping[str, Path], name: str, images: Images | None) -> Markup:
        """The labels of a video along time: when each was there, and below it when each model called it."""
        return _wide(model_rows({title: read_labels(path, title) for title, path in models.items()}), name)

    def case_legend(self, run: Run) -> list[LegendEntry]:
        return [LegendEntry(*one) for one in zip(("truth", "alone", "together"), (TRUTH_INK, *MODEL_INKS), strict=True)]


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
