"""What a report shows of one class a frame: scores of videos, what was taken for what, ribbons, and features."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from fedmed.reports.feature_pictures import FeaturePicture, feature_figure, feature_pictures
from fedmed.reports.label_charts import confusions_of, heat_map
from fedmed.reports.phase_charts import confusion_maps, spoken
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_report import Chart
from fedmed.reports.site_rows import SiteRow
from fedmed.reports.timelines import read_phases, ribbons
from fedmed.reports.video_report import VideoReport

WIDE = ("precision", "recall")  # columns for which a terminal has no room


class PhasesReport(VideoReport):
    """A run whose videos each have a score, and whose sites count which phase was taken for which."""

    told = (
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
    features = (
        "How the model sees frames",
        "Frames spread over the test videos of each site. Left, a dot is a frame, at the first two principal "
        "components of its features, coloured by its true phase; each panel has components and a scale of its own. "
        "Right, the first two videos of the site's list: the bluer, the more alike two frames are (cosine of their "
        "features, on the panel's own scale). A dot marks which frame of the second video is most like a frame of the "
        "first one; the heading says for how many frames of both that one is of the same phase.",
    )

    def screen_cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """Without what has no room."""
        return {head: text for head, text in self.cells(run, row).items() if head not in WIDE}

    def findings(self, run: Run) -> list[str]:
        """Sites at which every frame is called one phase."""
        phases, found = confusions_of(run)
        return [text for site, one in found.items() if (text := _one_called(site, phases, one.table))]

    def class_charts(self, run: Run) -> dict[str, Chart]:
        """F1 of each phase at each site, and tables of confusion."""
        phases, found = confusions_of(run)
        if not found:
            return {}
        counts = {site: one.counts for site, one in found.items()}
        return {
            "phases": Chart(lambda _: heat_map(phases, counts, "phase")),
            "confusion": Chart(lambda _: confusion_maps(phases, found)),
        }

    def further_charts(self, run: Run) -> dict[str, Chart]:
        """The features at each site where they are here."""
        found = {site.name: feature_pictures(site) for site in run.sites}
        return {f"features_{name}": Chart(partial(_features, own, name)) for name, own in found.items() if own}

    def figure(self, run: Run, site: Site) -> Figure | None:
        """Ribbons of the best, the median and the worst video of a site; None where they are not here."""
        pictures = list(site.pictures(read_phases))
        return ribbons(pictures, site.name) if pictures else None


def _one_called(site: str, phases: Sequence[str], table: np.ndarray) -> str:
    """That all frames are called one phase, by how many of each phase (rows) were called which; else empty."""
    called = np.flatnonzero(table.sum(axis=0))
    if len(called) != 1 or table.sum() < 2:
        return ""
    right, frames, name = int(table[called[0], called[0]]), int(table.sum()), spoken(phases[called[0]])
    share = f"{100 * right / frames:.0f} %"
    return (
        f"{site}: the model calls all {frames:,} frames '{name}'. {right:,} of them are ({share}): "
        "the accuracy is that of a model that looks at no frame."
    )


def _features(pictures: dict[str, FeaturePicture], site: str, _: Run) -> Figure:
    return feature_figure(pictures, site)
