"""What a report shows of one class a frame: scores of videos, what was taken for what, and ribbons along time."""

from matplotlib.figure import Figure

from fedmed.reports.label_charts import confusion_map, confusions_of, heat_map
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_report import Chart
from fedmed.reports.timelines import read_phases, ribbons
from fedmed.reports.video_report import VideoReport


class PhasesReport(VideoReport):
    """A run whose videos each have a score, and whose sites count which phase was taken for which."""

    told = (
        "Of each video the mean over the phases that occur in its truth or in what the model called; a phase that is "
        "never called has precision 0, one that never occurs has recall 0. Accuracy is the share of a video's frames."
    )
    columns = {"F1": "f1_mean", "accuracy": "accuracy_mean", "precision": "precision_mean", "recall": "recall_mean"}
    by_class = (
        "Each phase",
        "Sites send how many frames of each phase were called which, and no prediction; these counts add up. A dash: "
        "the phase neither occurred nor was called. Below, a cell's colour is its share of the frames of its row.",
    )
    shown = (
        "Videos along time",
        "The best, the median and the worst video of each site: above the true phases, below those that the model "
        "called.",
    )

    def class_charts(self, run: Run) -> dict[str, Chart]:
        """F1 of each phase at each site, and the table of confusion of all sites."""
        phases, found = confusions_of(run)
        if not found:
            return {}
        counts = {site: one.counts for site, one in found.items()}
        return {
            "phases": Chart(lambda _: heat_map(phases, counts, "phase")),
            "confusion": Chart(lambda _: confusion_map(phases, found)),
        }

    def figure(self, run: Run, site: Site) -> Figure | None:
        """Ribbons of the best, the median and the worst video of a site; None where they are not here."""
        pictures = list(site.pictures(read_phases))
        return ribbons(pictures, site.name) if pictures else None
