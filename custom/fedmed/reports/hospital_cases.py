"""Single cases of a hospital by two models: each patient in a chart, and those that gained and lost most."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedmed.data.listed_images import plain
from fedmed.errors import FedMedError
from fedmed.reports.gain import PATIENT, signed
from fedmed.reports.hospital_tests import ALONE, PLACE, TOGETHER, ComparedTests, Floats
from fedmed.reports.palette import INK, LIGHT, MUTED, png_address
from fedmed.reports.plots import WIDTH
from fedmed.reports.roc import PREFIX, probabilities, unit_square
from fedmed.reports.run_files import column
from fedmed.reports.run_report import Images, report_of
from fedmed.reports.words import count, fixed
from fedmed.training.case_recorder import EVERY_CASE

MOST = 5  # cases that gained, and that lost
GAINED, LOST, SAME = LIGHT[0], LIGHT[1], MUTED
TITLES = {ALONE: "alone", TOGETHER: "together"}
log = logging.getLogger("fedmed.site")


@dataclass(frozen=True)
class ComparedCase:
    """One case by both models.

    Attributes:
        name, patient: of the case; the patient is empty where the datalist does not say it.
        scores: by the model trained alone, and by the one trained together.
        facts: what else is known of it, in short.
        picture: HTML that our own code made; empty where there is none.
    """

    name: str
    patient: str
    scores: tuple[float, float]
    facts: str
    picture: Markup = Markup("")

    @property
    def change(self) -> str:
        """``0.612 alone, 0.701 together: +0.089``."""
        alone, together = self.scores
        return f"{fixed(alone)} alone, {fixed(together)} together: {signed(together - alone)}"


def patients_chart(label: str, alone: pd.Series, together: pd.Series) -> Figure:
    """A dot for each patient, alone against together; beside it each one's difference, the largest loss first.

    Args:
        label: of the score.
        alone, together: patient -> mean score, 0 to 1, of the same patients.
    """
    difference = (together - alone).to_numpy()
    figure = Figure(figsize=(WIDTH, 4.1))
    figure.set_layout_engine("constrained", wspace=0.08)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    unit_square(left, diagonal=True)
    left.scatter(alone, together, s=34, color=_colours(difference), alpha=0.85, linewidths=0, clip_on=False, zorder=3)
    left.set_title("Each patient")
    left.set(xlabel=f"{label}, trained alone", ylabel=f"{label}, trained together")
    _differences(right, np.sort(difference), label)
    names = (("gained", GAINED), ("lost", LOST), ("the same", SAME))
    counts = (int((difference > 0).sum()), int((difference < 0).sum()), int((difference == 0).sum()))
    handles = [
        Line2D([], [], color=colour, marker="o", linewidth=0, label=f"{name}: {count(n, 'patient')}")
        for (name, colour), n in zip(names, counts, strict=True)
        if n
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, frameon=False, fontsize=9.5)
    return figure


def _differences(axes: Axes, difference: Floats, label: str) -> None:
    axes.bar(range(len(difference)), difference, color=_colours(difference), linewidth=0, width=0.8)
    axes.axhline(0, color=INK, linewidth=0.8)
    reach = 1.1 * max(0.05, float(np.abs(difference).max()))
    axes.set(ylim=(-reach, reach), xlim=(-0.8, max(len(difference), 5) - 0.2), xticks=[])
    axes.set_title("Difference of each patient, together less alone")
    axes.set(xlabel="patients, the largest loss first", ylabel=label)


def _colours(difference: Floats) -> list[str]:
    return [GAINED if value > 0 else LOST if value < 0 else SAME for value in difference]


def most_changed(tests: ComparedTests, folder: Path, images: Images | None) -> dict[str, list[ComparedCase]]:
    """Return the cases that gained most and those that lost most, at most five each, the largest change first.

    Args:
        tests: of both models.
        folder: the job's folder at the site, where pictures of each case lie.
        images: gives the image of a case that is called one class, or a frame of a video that has masks.
    """
    alone, together = (tests.case_scores(model)[1] for model in (ALONE, TOGETHER))
    difference = together - alone
    order = np.argsort(difference, kind="stable")
    chosen = {
        "Gained most": [row for row in order[::-1].tolist() if difference[row] > 0],
        "Lost most": [row for row in order.tolist() if difference[row] < 0],
    }
    scores = list(zip(alone.tolist(), together.tolist(), strict=True))
    return {
        head: [_case(tests, row, scores[row], folder, images) for row in rows[:MOST]] for head, rows in chosen.items()
    }


def _case(
    tests: ComparedTests, row: int, scores: tuple[float, float], folder: Path, images: Images | None
) -> ComparedCase:
    cases = tests.tables[TOGETHER]
    name, patient, place = cases["case"].iloc[row], cases[PATIENT].iloc[row], int(cases[PLACE].iloc[row])
    picture = Markup("")
    try:
        if any(head.startswith(PREFIX) for head in cases):
            picture = _classified(tests, row, None if images is None else images(place))
        elif (folder / TOGETHER / EVERY_CASE).is_dir():
            files = {title: folder / model / EVERY_CASE / f"{place + 1}.npz" for model, title in TITLES.items()}
            picture = report_of(tests.run).case_picture(tests.run, files, f"case{place}", images)
    except (FedMedError, OSError, RuntimeError) as error:  # MONAI's transforms raise the last
        log.warning("no picture of case '%s' on the hospital's page: %s", name, error)
    nobody = patient == name or patient.startswith(f"{name} (")
    return ComparedCase(name, "" if nobody else patient, scores, _facts(tests, row), picture)


def _facts(tests: ComparedTests, row: int) -> str:
    """Volumes and distances by both models, where there are masks."""
    if not {"truth_ml", "prediction_ml", "hd95"} <= set(tests.tables[TOGETHER]):
        return ""
    true = column(tests.tables[TOGETHER], "truth_ml")[row]
    volumes = [column(tests.tables[model], "prediction_ml")[row] for model in (ALONE, TOGETHER)]
    distances = [column(tests.tables[model], "hd95")[row] for model in (ALONE, TOGETHER)]
    text = f"{true:.1f} ml true, {volumes[0]:.1f} ml alone, {volumes[1]:.1f} ml together"
    known = np.isfinite(distances).all()
    return f"{text}; HD95 {distances[0]:.1f} mm alone, {distances[1]:.1f} mm together" if known else text


def _classified(tests: ComparedTests, row: int, image: Any) -> Markup:
    """The image of a case, and its classes with their probabilities by each model."""
    both = {model: probabilities(tests.tables[model]) for model in (ALONE, TOGETHER)}
    lines = []
    first = both[TOGETHER]
    if first is None:
        return Markup("")
    for place, name in enumerate(first.classes):
        values = [f"{outputs.values[row, place]:.2f}" for outputs in both.values() if outputs is not None]
        true = place == first.labels[row]
        cells = "".join(f'<td class="n">{value}</td>' for value in values)
        lines.append(
            f"<tr{' class=true' if true else ''}><td>{escape(name)}{', true' if true else ''}</td>{cells}</tr>"
        )
    head = '<tr><th>probability</th><th class="n">alone</th><th class="n">together</th></tr>'
    table = f'<table class="bars">{head}{"".join(lines)}</table>'
    shown = "" if image is None else f'<img src="{png_address(grey(image))}" alt="image of the case">'
    return Markup(f'<div class="views"><div>{shown}</div><div>{table}</div></div>')  # noqa: S704 # escaped above


def grey(image: Any) -> np.ndarray:
    """Picture (H, W) in 0…1 of an image (C, H, W), or of the middle axial slice of a volume (C, X, Y, Z) in RAS."""
    values: np.ndarray = plain(image)[0].float().clamp(0, 1).cpu().numpy()
    return values if values.ndim == 2 else np.flip(values[..., values.shape[-1] // 2].T, (0, 1))
