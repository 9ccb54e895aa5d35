"""Read the single files of a run, each with an error that names it."""

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.errors import DataError, FedMedError

DAMAGED = "the run is damaged, start it again"
PICTURE_KEYS = ("image", "truth", "prediction", "spacing", "dice", "case")


@dataclass(frozen=True)
class SlicePicture:
    """One axial slice: image (H, W) float in 0..1, masks (H, W) bool, spacing (row, column) in mm."""

    kind: str
    case: str
    dice: float | None
    image: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray
    spacing: tuple[float, float]


def number(value: Any) -> float | None:
    """Return a finite float, or None for null, NaN, infinity and anything that is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file; a missing file is empty, and a half-written last line is left out."""
    if not path.is_file():
        return []
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = []
    for place, text in enumerate(texts, start=1):
        try:
            lines.append(json.loads(text))
        except ValueError as error:
            if place < len(texts):
                raise FedMedError(f"{path}, line {place} is damaged: {error}; remove the line") from error
    return [line for line in lines if isinstance(line, dict)]


def read_picture(path: Path, kind: str) -> SlicePicture:
    """Read ``best.npz`` and the like; DataError for a damaged file or masks of another shape."""
    try:
        with np.load(path, allow_pickle=False) as file:
            image, truth, prediction, spacing, dice, case = (file[key] for key in PICTURE_KEYS)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"cannot read the picture {path}: {error}; evaluate the site again") from error
    if image.ndim != 2 or truth.shape != image.shape or prediction.shape != image.shape:
        raise DataError(f"{path}: image, truth and prediction are not of one 2D shape; evaluate the site again")
    image = np.nan_to_num(image.astype(np.float64)).clip(0, 1)
    millimetres = (float(spacing[0]), float(spacing[1]))
    return SlicePicture(kind, str(case), number(float(dice)), image, truth > 0, prediction > 0, millimetres)


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a CSV file with a head: one mapping a row, as text; a missing file is empty."""
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [{key: value or "" for key, value in row.items() if key} for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error) as error:
        raise FedMedError(f"cannot read {path}: {error}; evaluate the site again") from error


def column(rows: list[dict[str, str]], name: str) -> list[float | None]:
    """One column as numbers; None where a cell is empty or no number.

    Raises:
        FedMedError: there is no such column.
    """
    if rows and name not in rows[0]:
        raise FedMedError(f"the column {name} is missing in cases.csv; evaluate the site again")
    return [parsed(row[name]) for row in rows]


def parsed(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        return number(float(text))
    except (TypeError, ValueError):
        return None
