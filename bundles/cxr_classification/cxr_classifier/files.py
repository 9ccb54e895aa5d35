"""Find the images to infer."""

import logging
from pathlib import Path

from cxr_classifier.errors import BundleInputError
from cxr_classifier.readers import DICOM_ENDINGS, file_kind

log = logging.getLogger("cxr_classifier")
ENDINGS = (*DICOM_ENDINGS, ".png", ".jpg", ".jpeg")
HEAT_MAPS = "heat_maps"  # folder below output_dir that inference writes pictures to
TABLES = ("predictions.csv", "predictions.json")  # files of output_dir that it writes


def list_images(folder: str | Path, output_dir: str | Path | None = None) -> list[str]:
    """Return the images of a folder at any depth, sorted: by their endings, or by how they begin (IM0001, 1.2.840.5).

    Hidden files and folders and DICOMDIR are ignored, and so is what an earlier inference wrote. The log tells the
    number of files that are no images.

    Args:
        folder: where the images are.
        output_dir: where inference writes; None = elsewhere.

    Raises:
        BundleInputError: no such folder, or no image in it.
    """
    root = Path(folder)
    candidates = (
        [path for path in sorted(root.rglob("*")) if _is_listed(path, root, output_dir)] if root.is_dir() else []
    )
    images = [path for path in candidates if path.suffix.lower() in ENDINGS or _begins_as_image(path)]
    if others := sorted(set(candidates) - set(images)):
        log.warning("%s: %d files are no DICOM, PNG or JPEG and are left out, such as %s", root, len(others), others[0])
    if not images:
        raise BundleInputError(f"{root} holds no .dcm, .png or .jpg file; set dataset_dir to a folder of chest X-rays")
    return [str(path) for path in images]


def _is_listed(path: Path, root: Path, output_dir: str | Path | None) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    if hidden or path.name == "DICOMDIR" or not path.is_file():
        return False
    if output_dir is None:
        return True
    places = [path.resolve(), *path.resolve().parents]
    return not any(Path(output_dir, name).resolve() in places for name in (HEAT_MAPS, *TABLES))


def _begins_as_image(path: Path) -> bool:
    try:
        return file_kind(path) is not None
    except BundleInputError:  # empty or not readable, and its name is not that of an image
        return False
