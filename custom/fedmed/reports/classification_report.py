"""What a report shows of a classification: a score of each site's list, heat-maps, ROC and reliability curves."""

from typing import Any

from matplotlib.figure import Figure

from fedmed.reports import heatmaps, roc
from fedmed.reports.class_probabilities import tested
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_report import Chart
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import Column, span
from fedmed.reports.words import NOTHING, fixed


class ClassificationReport(ScoredReport):
    """A run with a score that only a whole list has, such as the area under the ROC curve."""

    template = "classification.html.j2"

    def columns(self, run: Run) -> list[Column]:
        """The score with its interval, and the accuracy; the role has no room in 80 columns beside them."""
        return [
            Column("site", lambda row: row.name),
            Column("labels", lambda row: row.labels_and_decoder),
            Column("cases", lambda row: str(row.n_cases or NOTHING), right=True),
            Column(run.score.label, lambda row: fixed(row.mean), right=True),
            Column("95 % interval", lambda row: row.interval, right=True),
            Column("accuracy", lambda row: fixed(row.test.get("accuracy")), right=True),
        ]

    def values(self, run: Run) -> dict[str, Any]:
        """With the pictures of each site."""
        pictures = [(site, [heatmaps.entry(p) for p in site.pictures(heatmaps.read_classified)]) for site in run.sites]
        return super().values(run) | {"pictures": pictures, "scale": heatmaps.css_gradient(), "span": span}

    def charts(self, run: Run) -> dict[str, Chart]:
        """With the sites' cases at hand, also how the probabilities behave."""
        known = {"roc": Chart(roc.roc), "confusion": Chart(roc.confusion)} if tested(run) else {}
        return super().charts(run) | known

    def figure(self, site: Site) -> Figure | None:
        """A site's pictures for a PNG."""
        return heatmaps.figure(site)
