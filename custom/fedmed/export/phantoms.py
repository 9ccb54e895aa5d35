"""Drawn images that fit a bundle, to infer before and after an export: files in ``drawn``."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.bundle import ConfigParser

from fedmed.errors import ExportError

DRAWN = Path(__file__).with_name("drawn")  # of nobody: drawn by fedmed_demo


def phantom(folder: Path, image: Mapping[str, Any], config: Path) -> tuple[Path, str]:
    """Write a drawn chest X-ray, frame of an operation or chest CT into a folder; return its file and what it is.

    Args:
        folder: where to.
        image: what the metadata say of the network's input.
        config: the bundle's ``inference``.

    Raises:
        ExportError: a bundle for other images.
    """
    content = ConfigParser.load_config_file(config)
    flat = len(image["spatial_shape"]) == 2
    if flat and image.get("modality") == "xray" and image["num_channels"] == 1:
        return Path(shutil.copy(DRAWN / "chest_xray.png", folder / "phantom.png")), "chest X-ray"
    if flat and image.get("modality") == "endoscopy" and image["num_channels"] % 3 == 0:
        return Path(shutil.copy(DRAWN / "operation.png", folder / "phantom.png")), "frame of an operation"
    if not flat and content.get("pixdim") is not None and len(content.get("window_size") or ()) == 3:
        return _ct(folder / "phantom.nii.gz", np.multiply(content["window_size"], content["pixdim"])), "chest CT"
    raise ExportError(
        "--verify: generated images are chest X-rays, frames of operations and chest CTs only; name an image: "
        "--verify IMAGE"
    )


def _ct(path: Path, window: np.ndarray) -> Path:
    """A chest CT with all axes reversed, not much larger than one window (mm) of the bundle's inference."""
    scan: Any = nib.load(DRAWN / "chest_ct.nii.gz")
    wanted = np.ceil(1.1 * window / np.linalg.norm(scan.affine[:3, :3], axis=0)).astype(int)
    start = [max(0, (n - w) // 2) for n, w in zip(scan.shape, wanted, strict=True)]
    part = tuple(slice(s, s + int(w)) for s, w in zip(start, wanted, strict=True))
    affine = scan.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ start
    nib.save(nib.Nifti1Image(np.asanyarray(scan.dataobj)[part], affine), path)
    return path
