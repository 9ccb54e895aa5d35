"""Report of a classification: a score of each site's list, ROC and reliability curves, and heat-maps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fedmed.errors import DataError
from fedmed.reports import roc
from fedmed.reports.palette import HEAT, INK, MUTED, PAPER, png_address
from fedmed.reports.roc import PREFIX, Probabilities, probabilities, tested
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import read_arrays
from fedmed.reports.run_report import Chart
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import SiteRow, site_rows, span
from fedmed.reports.words import fixed, join
from fedmed.training.auroc import class_aurocs, macro_mean

WIDE = 3.4  # inches of an image and its overlay
OPAQUE = 0.72  # of the strongest heat; the image must stay visible below it
RAMP = LinearSegmentedColormap.from_list("heat", HEAT)
GUESSED = 0.5  # the AUROC of guessing
KEYS = ("image", "heat", "probabilities", "classes", "label", "case")


def one_class_called(site: str, outputs: Probabilities) -> str:
    """Say that all cases of a site, two or more, are called one class, and what that is worth; else empty."""
    if len(outputs.labels) < 2 or np.ptp(outputs.predicted):
        return ""
    place, cases = int(outputs.predicted[0]), len(outputs.labels)
    right, name = int((outputs.labels == place).sum()), outputs.classes[place]
    return (
        f"{site}: the model calls all {cases} images '{name}'. {right} of them are ({100 * right / cases:.0f} %): the "
        "accuracy is that of a model that looks at no image."
    )


def holds(row: SiteRow, value: float) -> bool:
    """True where a value lies in a row's interval."""
    return row.low is not None and row.high is not None and row.low <= value <= row.high


@dataclass(frozen=True)
class Classified:
    """One case: image and heat-map (H, W) float in 0..1, and a probability for each class, the highest first.

    The heat-map is of the class with the highest probability.
    """

    kind: str
    case: str
    image: np.ndarray
    heat: np.ndarray
    probabilities: dict[str, float]
    label: str

    @property
    def predicted(self) -> str:
        """The class with the highest probability."""
        return next(iter(self.probabilities))


def read_classified(path: Path, kind: str) -> Classified:
    """Read ``best.npz`` and the like; DataError for a damaged file."""
    image, heat, probabilities, classes, label, case = read_arrays(path, KEYS)
    if image.ndim != 2 or heat.shape != image.shape or probabilities.shape != classes.shape or classes.ndim != 1:
        raise DataError(f"{path}: image and heat-map, or classes and probabilities, differ in shape; evaluate again")
    names = [str(name) for name in classes]
    # The label may be written as the class's place.
    truth = names[int(label)] if np.issubdtype(label.dtype, np.integer) else str(label)
    image, heat = (np.nan_to_num(array.astype(np.float64)).clip(0, 1) for array in (image, heat))
    ranked = sorted(zip(names, map(float, probabilities), strict=True), key=lambda pair: -pair[1])
    return Classified(kind, str(case), image, heat, dict(ranked), truth)


class ClassificationReport(ScoredReport):
    """A run with a score that only a whole list has, such as the area under the ROC curve."""

    template, has_role = "classification.html.j2", False

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        interval, accuracy = span(row.low, row.high), fixed(row.test.get("accuracy"))
        return {run.score.label: fixed(row.mean), "95 % interval": interval, "accuracy": accuracy}

    def findings(self, run: Run) -> list[str]:
        """Sites at which every image is called one class, and those whose AUROC may be that of guessing."""
        called = [one_class_called(site, outputs) for site, outputs in tested(run).items()]
        guessed = [row for row in site_rows(run) if run.score.name == "auroc" and holds(row, GUESSED)]
        spans = join([f"{row.name} {span(row.low, row.high)}" for row in guessed])
        what = f"The 95 % interval of the AUROC holds {GUESSED}, which guessing gives: {spans}."
        return [text for text in called if text] + ([what] if guessed else [])

    def case_columns(self, run: Run, cases: pd.DataFrame) -> list[str]:
        """The probabilities, of which the whole list's AUROC or accuracy is made."""
        return [name for name in cases if name.startswith(PREFIX)] if run.score.name in ("auroc", "accuracy") else []

    def weighted(self, run: Run, cases: pd.DataFrame, weights: np.ndarray) -> np.ndarray:
        outputs = probabilities(cases)
        if outputs is None:
            return np.full(len(weights), np.nan)
        if run.score.name == "accuracy":
            share: np.ndarray = weights @ (outputs.predicted == outputs.labels) / weights.sum(axis=1)
            return share
        return macro_mean(class_aurocs(outputs.values, outputs.labels, weights))

    def values(self, run: Run) -> dict[str, Any]:
        pictures = [(site, list(site.pictures(read_classified))) for site in run.sites]
        scale = f"linear-gradient(90deg, {', '.join(HEAT)})"
        helpers = {"png_address": png_address, "overlay": overlay, "span": span}
        return super().values(run) | {"pictures": pictures, "scale": scale, **helpers}

    def charts(self, run: Run) -> dict[str, Chart]:
        """With the sites' cases at hand, also how the probabilities behave."""
        known = {"roc": Chart(roc.roc), "confusion": Chart(roc.confusion)} if tested(run) else {}
        return super().charts(run) | known

    def figure(self, run: Run, site: Site) -> Figure | None:
        pictures = list(site.pictures(read_classified))
        if not pictures:
            return None
        rows, columns = pictures[0].image.shape
        tall, bars = WIDE * rows / (2 * columns), 0.1 + 0.22 * len(pictures[0].probabilities)
        drawing = Figure(figsize=(WIDE * len(pictures), tall + bars + 0.75))
        drawing.set_layout_engine("constrained", wspace=0.06)
        drawing.suptitle(site.name, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
        grid = drawing.subplots(2, len(pictures), height_ratios=(tall, bars), squeeze=False)
        for (above, below), picture in zip(grid.T, pictures, strict=True):
            above.imshow(np.hstack([np.repeat(picture.image[..., None], 3, axis=2), overlay(picture)]))
            above.axvline(picture.image.shape[1] - 0.5, color=PAPER, linewidth=2)
            called = "right" if picture.predicted == picture.label else f"called {picture.predicted}"
            above.set_title(f"{picture.kind}: {called}", fontsize=9.5)
            above.set_axis_off()
            _bars(below, picture)
        return drawing


def overlay(picture: Classified) -> np.ndarray:
    """Image below its heat: (H, W, 3) float in 0..1. Where nothing is warm, the image is as it was."""
    opacity = OPAQUE * np.sqrt(picture.heat)[..., None]  # root: half the heat must not look like none
    return picture.image[..., None] * (1 - opacity) + RAMP(picture.heat)[..., :3] * opacity


def _bars(axes: Axes, picture: Classified) -> None:
    """Names left of bars, all within the width of the pictures."""
    for place, (name, value) in enumerate(picture.probabilities.items()):
        true = name == picture.label
        axes.barh(place, value, height=0.55, color=INK if true else MUTED, alpha=1.0 if true else 0.55, linewidth=0)
        weight: dict[str, Any] = {"va": "center", "fontsize": 8.5, "fontweight": "bold" if true else "normal"}
        axes.text(-1.0, place, f"{name}, truth" if true else name, color=INK, **weight)
        axes.text(1.3, place, f"{value:.2f}", color=INK, ha="right", **weight)
    axes.set_ylim(len(picture.probabilities) - 0.4, -0.6)
    axes.set_xlim(-1.0, 1.3)
    axes.set_axis_off()
