"""What a report shows of masks: a score for each case, and slices with contours."""

from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from fedmed.reports import overlays
from fedmed.reports.run import Run, Site
from fedmed.reports.run_files import read_picture
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
            Column("labels", lambda row: "\n".join(filter(None, (row.labels, row.scored)))),  # 80 columns are full
            Column("cases", lambda row: str(row.n_cases or NOTHING), right=True),
            Column(run.score.label, lambda row: fixed(row.mean), right=True),
            Column("± std", lambda row: fixed(row.std), right=True),
        ]

    def values(self, run: Run) -> dict[str, Any]:
        """The slices of each site, ready for the page."""
        return super().values(run) | {"pictures": [(site, slices(site)) for site in run.sites]}

    def figure(self, site: Site) -> Figure | None:
        """A site's slices for a PNG."""
        return overlays.figure(site)


def slices(site: Site) -> list[dict[str, Any]]:
    """The pictures of one site, ready for the page."""
    found = site.pictures(read_picture)
    return [{"kind": p.kind, "case": p.case, "dice": p.dice, "svg": Markup(overlays.svg(p))} for p in found]
