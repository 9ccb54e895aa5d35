"""What a report shows of masks: a score for each case, and axial slices with the contours of truth and prediction."""

from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from fedmed.bundles.score import HD95
from fedmed.data.structure import Structure, titles
from fedmed.reports.palette import INK, PREDICTION, PREDICTION_INK, TRUTH_INK
from fedmed.reports.run_contents import UNSCORED, Run, Site
from fedmed.reports.run_files import column
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import SiteRow
from fedmed.reports.slice_picture import draw, extent, outline, read_slice, svg
from fedmed.reports.words import NOTHING, count, fixed, join
from fedmed.training.surface_distance import APART

ISLANDS = (
    f"Distant islands ({APART:g} mm or more from all that is true), a few of which make HD95 large where Dice is high"
)
VOLUMES = "Volume, predicted less true, mean of the test scans"
NAMED = 3  # scans with distant islands that are named, of a site


class SegmentationReport(ScoredReport):
    """A run with a score of each case, such as Dice."""

    template, images = "segmentation.html.j2", "scans"

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """Mean and spread over a site's cases."""
        tested = ((run.result or {}).get("test") or {}).values()
        distance = {"HD95": millimetres(row)} if any(HD95.test in test for test in tested) else {}
        return {run.score.label: fixed(row.mean), "± std": fixed(row.std), **distance}

    def findings(self, run: Run) -> list[str]:
        """Distant islands, scans without any mark, and by how much volumes are off, where single cases are here."""
        sites = [site for site in run.sites if "islands" in site.cases]
        islands = [text for site in sites if (text := islands_in(site, marked_by(run)))]
        biases = [f"{site.name} {bias}" for site in sites if (bias := volume_bias(site.cases, marked_by(run)))]
        missed = [text for site in sites if (text := nothing_marked(site))]
        told = [f"{ISLANDS}: {'; '.join(islands)}."] if islands else []
        return told + missed + ([f"{VOLUMES}: {join(biases)}."] if biases else [])

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


def islands_in(site: Site, structure: Structure) -> str:
    """How many distant islands the model drew in a site's test scans, and in which, most first; empty without any."""
    counts = np.nan_to_num(column(site.cases, "islands")).astype(int)
    order = [place for place in np.argsort(-counts, kind="stable").tolist() if counts[place]]
    if not order:
        return ""
    named = [f"{site.cases['case'].iloc[place]} ({counts[place]})" for place in order[:NAMED]]
    named += [count(len(order) - NAMED, "other scan")] if len(order) > NAMED else []
    volume = structure.amount(float(np.nansum(column(site.cases, "islands_ml"))))
    return f"{site.name} {counts.sum()}, {volume} together, in {join(named)}"


def nothing_marked(site: Site) -> str:
    """In how many of a site's test scans that have something to mark the model marked nothing; empty where in none."""
    there = column(site.cases, "truth_ml") > 0
    missed = int((there & (column(site.cases, "prediction_ml") == 0)).sum())
    scans = "1 scan that has" if there.sum() == 1 else f"{there.sum()} scans that have"
    return f"{site.name}: nothing is marked in {missed} of {scans} a true mask." if missed else ""


def volume_bias(cases: pd.DataFrame, structure: Structure) -> str:
    """Mean of the predicted less the true volume, ``+12.3 ml (+8.1 %)`` of the true one; empty without true volumes."""
    true, found = column(cases, "truth_ml"), column(cases, "prediction_ml")
    known = np.isfinite(true) & np.isfinite(found)
    if not true[known].sum():
        return ""
    bias, share = float((found - true)[known].mean()), float(found[known].sum() / true[known].sum() - 1)
    sign = "−" if bias < 0 else "+"
    return f"{sign}{structure.amount(abs(bias))} ({sign}{abs(100 * share):.1f} %)"


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
