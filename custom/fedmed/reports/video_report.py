"""What reports show of every run on videos: scores of videos, charts by class, and single videos of each site."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from markupsafe import Markup

from fedmed.reports.plots import svg
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column, number
from fedmed.reports.run_report import Chart
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import SiteRow
from fedmed.reports.words import NOTHING, fixed


class VideoReport(ScoredReport):
    """A run whose videos each have a score.

    Attributes:
        told: sentences on the scores of the table of sites.
        columns: head of a column beside the score -> number of a site's test.
        by_class: heading above the charts of each class, and what they show.
        shown: heading above what is drawn of single videos, and what that shows.
        of_video: head of a column of the table of a site's videos -> column of ``cases.csv``; empty: there is none.
        features: heading above :meth:`further_charts`, and what they show.
    """

    template, images, has_role = "videos.html.j2", "videos", False
    told: ClassVar[str]
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
        """Mean and spread over a site's videos, and what is told beside."""
        beside = {head: fixed(row.test.get(key)) for head, key in self.columns.items() if key != run.score.test}
        return {run.score.label: fixed(row.mean), "± std": fixed(row.std), **beside}

    def charts(self, run: Run) -> dict[str, Chart]:
        return super().charts(run) | self.class_charts(run) | self.further_charts(run)

    def values(self, run: Run) -> dict[str, Any]:
        """With what is drawn of each site."""
        figures = [(site, self.figure(run, site)) for site in run.sites]
        drawn = [(site, Markup(svg(one, f"videos{n}")) if one else "") for n, (site, one) in enumerate(figures)]
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
