"""Compare what inference wrote before and after an export."""

import json
import math
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from fedmed.data.video.frame_masks import picture
from fedmed.errors import ExportError

MASKS, PREDICTIONS = "*.nii*", "predictions.json"
LARGEST = 1e-6  # difference of two probabilities


def compare_masks(before: Path, after: Path) -> str:
    """Return in words that two folders of masks are equal voxel for voxel.

    Raises:
        ExportError: they are not; says which file, and how many voxels.
    """
    marked = 0
    for name in _names(before, after, MASKS):
        one, other = (nib.Nifti1Image.from_filename(folder / name) for folder in (before, after))
        if one.shape != other.shape or not np.array_equal(one.affine, other.affine):
            raise ExportError(
                f"{name}: the grid is {other.shape} after the export, it was {one.shape}, or its affine moved"
            )
        marked += _same(name, np.asarray(one.dataobj), np.asarray(other.dataobj), "voxels")
    return f"equal voxel for voxel ({marked} marked), with the same affine"


def compare_frame_masks(before: Path, after: Path) -> str:
    """Return in words that two folders of PNG masks of frames are equal pixel for pixel; ExportError likewise."""
    marked = 0
    for name in _names(before, after, "*.png"):
        one, other = (picture(folder / name) for folder in (before, after))
        if one.shape != other.shape:
            raise ExportError(f"{name}: the mask is {other.shape} after the export, it was {one.shape}")
        marked += _same(name, one, other, "pixels")
    return f"equal pixel for pixel ({marked} marked)"


def _names(before: Path, after: Path, pattern: str) -> list[Path]:
    """Of the files of both folders; ExportError where they differ or there are none."""
    names, found = ([path.relative_to(folder) for path in sorted(folder.rglob(pattern))] for folder in (before, after))
    if names != found or not names:
        raise ExportError(f"before the export inference wrote {len(names)} results, after it {len(found)}")
    return names


def _same(name: Path, a: np.ndarray, b: np.ndarray, unit: str) -> int:
    """How many are marked of two masks of one shape; ExportError where they differ."""
    if not np.array_equal(a, b):
        raise ExportError(f"{name}: {int((a != b).sum())} of {a.size} {unit} differ before and after the export")
    return int(np.count_nonzero(a))


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
