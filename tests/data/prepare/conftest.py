"""Small scans as NIfTI files, small videos and pictures."""

from pathlib import Path

import cv2
import nibabel as nib
import numpy as np
import pytest

from fedmed.data.prepare.pool import run_all


def scan_values(seed: int = 0, shape: tuple[int, ...] = (10, 9, 6)) -> np.ndarray:
    """HU between air and bone."""
    return np.random.default_rng(seed).integers(-1000, 400, shape).astype(np.int16)


@pytest.fixture(scope="session")
def write_nifti():
    """Write ``values`` (default: a seeded scan) with spacing 0.7×0.7×2 mm and return the path."""

    def write(path: Path, values: np.ndarray | None = None, affine: np.ndarray | None = None, seed: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        affine = np.diag([-0.7, -0.7, 2.0, 1.0]) if affine is None else affine
        nib.save(nib.Nifti1Image(scan_values(seed) if values is None else values, affine), path)
        return path

    return write


@pytest.fixture(scope="session")
def write_pair(write_nifti):
    """Write image ``root/image/<name>.nii.gz`` and a mask of the same name with ``ones`` voxels."""

    def write(root: Path, name: str, seed: int, ones: int = 4) -> None:
        write_nifti(root / "image" / f"{name}.nii.gz", seed=seed)
        mask = np.zeros((10, 9, 6), np.uint8)
        mask[2 : 2 + ones, 3, 2] = 1
        write_nifti(root / "mask" / f"{name}.nii.gz", mask)

    return write


@pytest.fixture
def found_here(monkeypatch):
    """DICOM series are found in this process, where one of its own is not the question: each loads ITK for seconds."""
    monkeypatch.setattr("fedmed.data.prepare.dicom_folder.read_apart", lambda work, *arguments: work(*arguments))


@pytest.fixture
def read_here(found_here, monkeypatch):
    """DICOM series are found and read in this process."""
    monkeypatch.setattr("fedmed.data.prepare.ct_inspect.run_all", lambda *given, apart, died: run_all(*given))


@pytest.fixture(scope="session")
def movie():
    """Write a video of 48 x 64 pixels whose brightness follows its seed and grows by ``step`` a frame."""

    def write(path: Path, seed: int = 0, seconds: int = 4, rate: int = 25, step: int = 1) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), rate, (64, 48))
        for number in range(seconds * rate):
            writer.write(np.full((48, 64, 3), (20 + 37 * seed + step * number) % 256, np.uint8))
        writer.release()
        return path

    return write


@pytest.fixture(scope="session")
def png():
    """Write a grey picture whose first rows have the given values."""

    def write(path: Path, values: list[int], size: tuple[int, int] = (48, 64)) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = np.zeros(size, np.uint8)
        picture[: len(values)] = np.array(values, np.uint8)[:, None]
        assert cv2.imwrite(str(path), picture)

    return write
