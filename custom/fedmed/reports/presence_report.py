"""What a report shows of several labels at once: scores of videos, scores by site and label, and labels along time."""

from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from fedmed.reports.plots import svg
from fedmed.reports.presence_charts import counts_of, heat_map, label_bars, read_timeline, timelines
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_report import Chart
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import SiteRow
from fedmed.reports.words import fixed


class PresenceReport(ScoredReport):
    """A run whose videos each have a score, and whose sites count the frames of each label."""

    template, images, has_role = "presence.html.j2", "videos", False

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """Mean and spread over a site's videos, their average precision, and the F1 of all frames together."""
        beside = {"AP": row.test.get("ap_mean"), "all frames": row.test.get("pooled_f1_zero")}
        own = {run.score.label: row.mean, "± std": row.std}
        return {head: fixed(value) for head, value in {**own, **beside}.items()}

    def values(self, run: Run) -> dict[str, Any]:
        """With the timelines of each site."""
        drawn = [(site, self.figure(run, site)) for site in run.sites]
        shown = [(site, Markup(svg(one, f"timeline{n}")) if one else "") for n, (site, one) in enumerate(drawn)]
        return super().values(run) | {"timelines": shown}

    def charts(self, run: Run) -> dict[str, Chart]:
        """With the sites' counts at hand, also scores by label."""
        known = {"labels": Chart(heat_map), "bars": Chart(label_bars)} if counts_of(run)[1] else {}
        return super().charts(run) | known

    def figure(self, run: Run, site: Site) -> Figure | None:
        """The best, the median and the worst video of a site along time; None where they are not here."""
        pictures = list(site.pictures(read_timeline))
        return timelines(pictures, site.name) if pictures else None
