"""Made-up images that fit a bundle, to infer before and after an export."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.bundle import ConfigParser

from fedmed.errors import ExportError


def phantom(folder: Path, image: Mapping[str, Any], config: Path) -> tuple[Path, str]:
    """Write a made-up chest X-ray, frame of an operation or chest CT into a folder; return its file and what it is.

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
        return _xray(folder), "chest X-ray"
    if flat and image.get("modality") == "endoscopy" and image["num_channels"] % 3 == 0:
        return _frame(folder / "phantom.png"), "frame of an operation"
    if not flat and content.get("pixdim") is not None and len(content.get("window_size") or ()) == 3:
        return _ct(folder / "phantom.nii.gz", np.multiply(content["window_size"], content["pixdim"])), "chest CT"
    raise ExportError(
        "--verify: generated images are chest X-rays, frames of operations and chest CTs only; name an image: "
        "--verify IMAGE"
    )


def _xray(folder: Path) -> Path:
    """A small radiograph as 16-bit PNG, not square."""
    from fedmed.data.synthetic.xray.chest_xray import draw_person, radiograph
    from fedmed.data.synthetic.xray.image_files import Header, save
    from fedmed.data.synthetic.xray.institutions import SITES, tiny

    person = draw_person(tiny(SITES["cxr_children"]), "phantom", "consolidation")
    made = radiograph(person)
    return folder / save(made.image, folder, "phantom", "png", Header("phantom", 0, 1, made.pixel, made.position))


def _frame(path: Path) -> Path:
    """The frame of a small made-up operation that shows most of its instruments: empty masks would tell nothing."""
    from PIL import Image

    from fedmed.data.synthetic.federation import LAP_INSTRUMENTS_TINY
    from fedmed.data.synthetic.surgery.recording import DrawnRecording

    frames = DrawnRecording(LAP_INSTRUMENTS_TINY["inst_nephro1"], "phantom")
    Image.fromarray(max(frames, key=lambda frame: np.count_nonzero(frame.mask)).image).save(path)
    return path


def _ct(path: Path, window: np.ndarray) -> Path:
    """A chest CT with all axes reversed, not much larger than one window (mm) of the bundle's inference."""
    from fedmed.data.synthetic.chest_ct import make_scan
    from fedmed.data.synthetic.hospitals import SITES, tiny

    scan = make_scan(tiny(SITES["ct_south"]), "phantom")
    wanted = np.ceil(1.1 * window / np.linalg.norm(scan.affine[:3, :3], axis=0)).astype(int)
    start = [max(0, (n - w) // 2) for n, w in zip(scan.image.shape, wanted, strict=True)]
    part = tuple(slice(s, s + int(w)) for s, w in zip(start, wanted, strict=True))
    affine = scan.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ start
    nib.save(nib.Nifti1Image(scan.image[part], affine), path)
    return path
