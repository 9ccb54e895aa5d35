"""What a report shows of masks: a score for each case, and slices with contours."""

from typing import Any

from matplotlib.figure import Figure

from fedmed.reports import slices
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import Column
from fedmed.reports.words import NOTHING, fixed


class SegmentationReport(ScoredReport):
    """A run with a score of each case, such as Dice."""

    template = "segmentation.html.j2"

    def columns(self, run: Run) -> list[Column]:
        """Mean and spread over a site's cases."""
        return [
            Column("site", lambda row: row.name),
            Column("role", lambda row: row.role),
            Column("labels", lambda row: row.labels_and_decoder),
            Column("cases", lambda row: str(row.n_cases or NOTHING), right=True),
            Column(run.score.label, lambda row: fixed(row.mean), right=True),
            Column("± std", lambda row: fixed(row.std), right=True),
        ]

    def values(self, run: Run) -> dict[str, Any]:
        """With the slices of each site."""
        pictures = [(site, [slices.entry(p) for p in site.pictures(slices.read_slice)]) for site in run.sites]
        return super().values(run) | {"pictures": pictures}

    def figure(self, site: Site) -> Figure | None:
        """A site's slices for a PNG."""
        return slices.figure(site)
