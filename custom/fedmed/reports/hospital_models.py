"""Table of the models that a hospital tested on the same cases: scores, distances, volumes, calibration."""

from collections.abc import Mapping

import numpy as np

from fedmed.reports.gain import signed
from fedmed.reports.hospital_tests import ALONE, TOGETHER, ComparedTests, Floats
from fedmed.reports.roc import probabilities
from fedmed.reports.run_files import column
from fedmed.reports.sheet import SheetTable
from fedmed.reports.words import NOTHING, fixed
from fedmed.training.calibration import brier_score, expected_calibration_error

NAMES = {
    ALONE: "alone: trained on this hospital's images only",
    TOGETHER: "together: the model that was selected",
    "evaluation_last": "together: after the last round",
    "evaluation_own": "together: the one of all rounds that this hospital's validation list scored best",
    "evaluation_released": "together, with layers that hospitals released, in place of this hospital's own",
    "evaluation_first": "before any training",
}
OWN_LAYERS = "together, with own layers: the model that was selected, with layers that only this hospital has"
MEANINGS = {
    "dice": "Dice is the overlap of the model's marks with the true ones: 1 is the same, 0 none.",
    "auroc": "AUROC says how well the classes are told apart: 1 is without a mistake, 0.5 is guessing.",
    "accuracy": "Accuracy is the share of images that are called right.",
    "f1": "F1 weighs what is missed against what is called in vain: 1 is without a mistake.",
}
VOLUMES = (
    "HD95 is a distance between the outlines in millimetres, the 95th percentile of a case, here the median of the "
    "cases; cases in which one of the models and the truth have nothing at all are left out. The volume error is the "
    "mean of |predicted − true volume|, in % of the mean true volume. Of both less is better."
)
CALIBRATION = (
    "The calibration error (ECE) is by how much the model's certainty differs from how often it is right, in 15 steps "
    "of certainty (Guo et al. 2017); with few cases it is above 0 by chance alone. The Brier score is the squared "
    "error of the probabilities, 0 to 2 (Brier 1950). Of both less is better."
)


def model_table(tests: ComparedTests) -> SheetTable:
    """Return the table, the model trained alone first, and after it the one that was selected."""
    further = further_numbers(tests)
    heads = list(next(iter(further.values()), {}))
    label = tests.run.score.label
    columns = ["model", f"{label}#", "difference to alone#", "95 % interval#", *(f"{head}#" for head in heads)]
    rows = []
    for model in NAMES:
        if model in tests.tables:
            gain = tests.gain(model, model)
            change = [NOTHING] * 2 if model == ALONE else [signed(gain.difference), gain.span]
            rows.append([_name(tests, model), fixed(gain.ours), *change, *further.get(model, {}).values()])
    note = MEANINGS.get(tests.run.score.name, f"{label} is 0 to 1; more is better.")
    also = VOLUMES if "HD95, mm" in heads else CALIBRATION if heads else ""
    return SheetTable("All models on the same cases", f"{note} {also}".strip(), columns, rows)


def further_numbers(tests: ComparedTests) -> Mapping[str, Mapping[str, str]]:
    """Folder of a model -> head of a column -> number, of masks or probabilities; empty for other kinds of task."""
    first = tests.tables[TOGETHER]
    if {"hd95", "truth_ml", "prediction_ml"} <= set.intersection(*(set(table) for table in tests.tables.values())):
        return _of_masks(tests)
    if probabilities(first) is not None:
        return _of_probabilities(tests)
    return {}


def volume_errors(true: Floats, predicted: Floats) -> tuple[float, float]:
    """Mean distance (ml) of predicted and true volumes (n,), and its share of the mean true one; NaN of nothing."""
    known = np.isfinite(true) & np.isfinite(predicted)
    if not known.any():
        return np.nan, np.nan
    error, mean = float(np.abs(predicted - true)[known].mean()), float(true[known].mean())
    return error, error / mean if mean else np.nan


def _of_masks(tests: ComparedTests) -> Mapping[str, Mapping[str, str]]:
    distances = {model: column(table, "hd95") for model, table in tests.tables.items()}
    known = np.all([np.isfinite(values) for values in distances.values()], axis=0)
    numbers = {}
    for model, table in tests.tables.items():
        error, share = volume_errors(column(table, "truth_ml"), column(table, "prediction_ml"))
        middle = float(np.median(distances[model][known])) if known.any() else np.nan
        numbers[model] = {
            "HD95, mm": _shown(middle, 1),
            "volume error, ml": _shown(error, 1),
            "volume error, %": _shown(100 * share, 0),
        }
    return numbers


def _of_probabilities(tests: ComparedTests) -> Mapping[str, Mapping[str, str]]:
    numbers = {}
    for model, table in tests.tables.items():
        if (outputs := probabilities(table)) is not None:
            right = float((outputs.predicted == outputs.labels).mean())
            numbers[model] = {
                "called right, %": _shown(100 * right, 0),
                "calibration error": _shown(expected_calibration_error(outputs.values, outputs.labels), 3),
                "Brier score": _shown(brier_score(outputs.values, outputs.labels), 3),
            }
    return numbers


def _name(tests: ComparedTests, model: str) -> str:
    return OWN_LAYERS if model == TOGETHER and own_layers(tests) else NAMES[model]


def own_layers(tests: ComparedTests) -> bool:
    """True where layers of the federation's model stay at the hospital."""
    sharing = tests.run.study.get("sharing", "full")
    return (sharing.get("supervised", "full") if isinstance(sharing, dict) else sharing) != "full"


def _shown(value: float, digits: int) -> str:
    return fixed(value if np.isfinite(value) else None, digits)
