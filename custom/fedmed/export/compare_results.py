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
    names, found = ([path.relative_to(folder) for path in sorted(folder.rglob(MASKS))] for folder in (before, after))
    if names != found or not names:
        raise ExportError(f"before the export inference wrote {len(names)} results, after it {len(found)}")
    marked = 0
    for name in names:
        one, other = (nib.Nifti1Image.from_filename(folder / name) for folder in (before, after))
        if one.shape != other.shape or not np.array_equal(one.affine, other.affine):
            raise ExportError(
                f"{name}: the grid is {other.shape} after the export, it was {one.shape}, or its affine moved"
            )
        a, b = np.asarray(one.dataobj), np.asarray(other.dataobj)
        if not np.array_equal(a, b):
            raise ExportError(f"{name}: {int((a != b).sum())} of {a.size} voxels differ before and after the export")
        marked += int(np.count_nonzero(a))
    return f"equal voxel for voxel ({marked} marked), with the same affine"


def compare_predictions(before: Path, after: Path) -> str:
    """Return in words that two folders of predictions are equal, probabilities within 1e-6.

    Raises:
        ExportError: they are not; says which probability.
    """
    rows, found = _read(before, "before"), _read(after, "after")
    calls = [[(row["image"], row["predicted"], sorted(row["probabilities"])) for row in part] for part in (rows, found)]
    if calls[0] != calls[1] or not rows:
        raise ExportError(f"inference gave other images or classes after the export: {calls[1]}, before it {calls[0]}")
    largest = 0.0
    for one, other in zip(rows, found, strict=True):
        for name, value in one["probabilities"].items():
            again = other["probabilities"][name]
            if not math.isclose(value, again, rel_tol=0, abs_tol=LARGEST):
                raise ExportError(f"the probability of '{name}' is {again:.6f} after the export, it was {value:.6f}")
            largest = max(largest, abs(value - again))
    return "the same class and equal probabilities" + (f" (within {largest:.0e})" if largest else "")


def _read(folder: Path, when: str) -> list[dict[str, Any]]:
    path = folder / PREDICTIONS
    try:
        content: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"inference {when} the export wrote no readable {PREDICTIONS} ({error})") from error
    return content
