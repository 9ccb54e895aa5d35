"""Small scans as NIfTI files."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest


def scan_values(seed: int = 0, shape: tuple[int, ...] = (10, 9, 6)) -> np.ndarray:
    """HU between air and bone."""
    return np.random.default_rng(seed).integers(-1000, 400, shape).astype(np.int16)


@pytest.fixture
def write_nifti():
    """Write ``values`` (default: a seeded scan) with spacing 0.7×0.7×2 mm and return the path."""

    def write(path: Path, values: np.ndarray | None = None, affine: np.ndarray | None = None, seed: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        affine = np.diag([-0.7, -0.7, 2.0, 1.0]) if affine is None else affine
        nib.save(nib.Nifti1Image(scan_values(seed) if values is None else values, affine), path)
        return path

    return write


@pytest.fixture
def write_pair(write_nifti):
    """Write image ``root/image/<name>.nii.gz`` and a mask of the same name with ``ones`` voxels."""

    def write(root: Path, name: str, seed: int, ones: int = 4) -> None:
        write_nifti(root / "image" / f"{name}.nii.gz", seed=seed)
        mask = np.zeros((10, 9, 6), np.uint8)
        mask[2 : 2 + ones, 3, 2] = 1
        write_nifti(root / "mask" / f"{name}.nii.gz", mask)

    return write
