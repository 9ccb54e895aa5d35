"""What a report shows of masks: a score for each case, and axial slices with the contours of truth and prediction."""

from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from fedmed.bundles.score import HD95
from fedmed.data.structure import Structure, titles
from fedmed.reports.palette import INK, PREDICTION, PREDICTION_INK, TRUTH_INK
from fedmed.reports.run_contents import UNSCORED, Run, Site
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import SiteRow
from fedmed.reports.slice_picture import draw, extent, outline, read_slice, svg
from fedmed.reports.words import NOTHING, fixed


class SegmentationReport(ScoredReport):
    """A run with a score of each case, such as Dice."""

    template, images = "segmentation.html.j2", "scans"

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """Mean and spread over a site's cases."""
        tested = ((run.result or {}).get("test") or {}).values()
        distance = {"HD95": millimetres(row)} if any(HD95.test in test for test in tested) else {}
        return {run.score.label: fixed(row.mean), "± std": fixed(row.std), **distance}

    def values(self, run: Run) -> dict[str, Any]:
        """With the slices of each site."""
        marked = marked_by(run)
        found = [(site, [(p, Markup(svg(p, marked))) for p in site.pictures(read_slice)]) for site in run.sites]
        also = {"pictures": found, "marked": marked, "colour": outline(marked), "grid": grid(run), "UNSCORED": UNSCORED}
        return super().values(run) | also | {"millimetres": millimetres}

    def figures(self, run: Run) -> list[tuple[str, str]]:
        """With what is marked, first."""
        return [*([("marks", titles(run.classes))] if run.classes else []), *super().figures(run)]

    def table(self, run: Run) -> Table:
        """With the grid of its scores."""
        table = super().table(run)
        remarks = [table.caption] if isinstance(table.caption, Text) else []
        table.caption = Text("\n").join([Text(grid(run)), *remarks])
        return table

    def figure(self, run: Run, site: Site) -> Figure | None:
        """The pictures of a site side by side, for a PNG; None where there are none."""
        pictures = list(site.pictures(read_slice))
        if not pictures:
            return None
        tallest = max(height / width for width, height in map(extent, pictures))
        drawing = Figure(figsize=(3.4 * len(pictures), 3.3 * tallest + 0.8), layout="constrained")
        drawing.suptitle(site.name, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
        for axes, picture in zip(np.atleast_1d(drawing.subplots(1, len(pictures))), pictures, strict=True):
            draw(axes, picture, marked_by(run))
        look: dict[str, Any] = {"xycoords": "figure fraction", "textcoords": "offset points", "ha": "right"}
        colour = outline(marked_by(run))
        names = [("prediction", -8, PREDICTION_INK if colour == PREDICTION else colour)]
        names += [("truth", -78, TRUTH_INK)] if any(picture.kind != UNSCORED for picture in pictures) else []
        for name, left, colour in names:
            axes.annotate(name, (1, 1), (left, -6), color=colour, fontsize=9.5, va="top", **look).set_in_layout(False)
        return drawing


def marked_by(run: Run) -> Structure:
    """What the masks mark; of a run that does not say it, something without a name."""
    return run.classes[0] if run.classes else Structure(name="region")


def grid(run: Run) -> str:
    """On which voxels masks are compared, a sentence."""
    sizes = f", voxels of {' × '.join(f'{size:g}' for size in run.grid)} mm" if run.grid else ""
    return f"{run.score.label} is computed on the grid that the network sees{sizes}, not on that of the scan."


def millimetres(row: SiteRow) -> str:
    """The median 95 % Hausdorff distance of a site's cases."""
    value = row.test.get(HD95.test)
    return NOTHING if value is None else f"{value:.1f} mm"
