"""A case with its masks, read from NIfTI files and turned upright."""

from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np

from fedmed.data.geometry import axis_order, corner_distance
from fedmed.data.image_size import UNREADABLE, opened_nifti
from fedmed.data.prepare.volume_faults import GRID_TOLERANCE
from fedmed.errors import DataError


@dataclass(frozen=True)
class ViewedCase:
    """A scan with one or two masks, array axes towards right, front, head (nearly so where the scan is oblique).

    Args:
        name: shown above the picture.
        image: (X, Y, Z) HU.
        prediction, truth: bool, the image's shape; no truth is None.
        spacing: voxel size in mm.
    """

    name: str
    image: np.ndarray
    prediction: np.ndarray
    truth: np.ndarray | None
    spacing: tuple[float, float, float]

    def millilitres(self, mask: np.ndarray) -> float:
        return float(mask.sum()) * float(np.prod(self.spacing)) / 1000

    def dice(self) -> float | None:
        """Dice of prediction and truth; None without truth or where both are empty."""
        if self.truth is None or not (self.truth.any() or self.prediction.any()):
            return None
        both = float((self.truth & self.prediction).sum())
        return 2 * both / float(self.truth.sum() + self.prediction.sum())


def read_case(image: Path, prediction: Path, truth: Path | None = None) -> ViewedCase:
    """Read a case from NIfTI files.

    Raises:
        DataError: a file is missing or unreadable or not a single volume, or a mask is on another grid than the image.
    """
    scan = _read(image)
    x, y, z = np.linalg.norm(nib.as_closest_canonical(scan).affine[:3, :3], axis=0).tolist()
    masks = [_read_mask(path, image, scan) for path in (prediction, *([truth] if truth else []))]
    name = image.name.removesuffix(".gz").removesuffix(".nii")
    return ViewedCase(name, _straight(scan), masks[0], masks[1] if truth else None, (x, y, z))


def _straight(image: nib.Nifti1Image) -> np.ndarray:
    return np.asarray(nib.as_closest_canonical(image).dataobj)


def _read(path: Path) -> nib.Nifti1Image:
    if not path.is_file():
        raise DataError(f"{path} does not exist; give a NIfTI file")
    try:
        image = opened_nifti(path)
        values = np.asarray(image.dataobj, dtype=np.float32)  # now, for only this finds a file that is cut off
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read ({error}); give a NIfTI file") from error
    if values.ndim != 3:
        raise DataError(f"{path} has shape {values.shape}; a single volume (X, Y, Z) is needed")
    return nib.Nifti1Image(values, image.affine)


def _read_mask(path: Path, image: Path, scan: nib.Nifti1Image) -> np.ndarray:
    mask = _read(path)
    if order := axis_order(mask.affine, mask.shape, scan.affine, scan.shape, GRID_TOLERANCE):
        turned = np.flip(np.asarray(mask.dataobj).transpose(order[0]), order[1])
        mask = nib.Nifti1Image(turned, scan.affine)
    if mask.shape != scan.shape:
        raise DataError(f"{path} has shape {mask.shape}, but {image} has {scan.shape}; give a mask of this image")
    apart = corner_distance(scan.affine, mask.affine, scan.shape)
    if not apart <= GRID_TOLERANCE:
        raise DataError(f"{path} lies {apart:.1f} mm away from {image}; give a mask of this image")
    return _straight(mask) > 0.5
