"""Compare what inference wrote before and after an export."""

import json
import math
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from fedmed.errors import ExportError

MASKS, PREDICTIONS = "*.nii*", "predictions.json"
LARGEST = 1e-6  # difference of two probabilities


def compare_masks(before: Path, after: Path) -> str:
    """Return in words that two folders of masks are equal voxel for voxel.

    Raises:
        ExportError: they are not; says which file, and how many voxels.
    """
    return f"equal voxel for voxel ({_same_masks(before, after)} marked), with the same affine"


def compare_predictions(before: Path, after: Path) -> str:
    """Return in words that two folders of predictions are equal, probabilities within 1e-6.

    Raises:
        ExportError: they are not; says which probability.
    """
    return _same_predictions(_read(before, "before"), _read(after, "after"))


def _same_masks(before: Path, after: Path) -> int:
    """How many voxels are not 0."""
    names = [sorted(path.relative_to(folder) for path in folder.rglob(MASKS)) for folder in (before, after)]
    if names[0] != names[1] or not names[0]:
        raise ExportError(f"before the export inference wrote {len(names[0])} results, after it {len(names[1])}")
    marked = 0
    for name in names[0]:
        one, other = nib.load(before / name), nib.load(after / name)
        if one.shape != other.shape or not np.array_equal(one.affine, other.affine):
            raise ExportError(
                f"{name}: the grid is {other.shape} after the export, it was {one.shape}, or its affine moved"
            )
        a, b = np.asarray(one.dataobj), np.asarray(other.dataobj)
        if not np.array_equal(a, b):
            raise ExportError(f"{name}: {int((a != b).sum())} of {a.size} voxels differ before and after the export")
        marked += int(np.count_nonzero(a))
    return marked


def _read(folder: Path, when: str) -> list[dict[str, Any]]:
    path = folder / PREDICTIONS
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"inference {when} the export wrote no readable {PREDICTIONS} ({error})") from error


def _same_predictions(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    told = [
        [(row["image"], row["predicted"], sorted(row["probabilities"])) for row in rows] for rows in (before, after)
    ]
    if told[0] != told[1] or not told[0]:
        raise ExportError(f"inference gave other images or classes after the export: {told[1]}, before it {told[0]}")
    largest = 0.0
    for one, other in zip(before, after, strict=True):
        for name, value in one["probabilities"].items():
            if not math.isclose(value, other["probabilities"][name], rel_tol=0, abs_tol=LARGEST):
                raise ExportError(
                    f"the probability of '{name}' is {other['probabilities'][name]:.6f} after the export, it was "
                    f"{value:.6f}"
                )
            largest = max(largest, abs(value - other["probabilities"][name]))
    return "the same class and equal probabilities" + (f" (within {largest:.0e})" if largest else "")
