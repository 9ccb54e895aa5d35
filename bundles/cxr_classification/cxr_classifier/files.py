"""Find the images to infer."""

from pathlib import Path

from cxr_classifier.errors import BundleInputError
from cxr_classifier.readers import DICOM, DICOM_ENDINGS, DICOM_OFFSET

ENDINGS = (*DICOM_ENDINGS, ".png", ".jpg", ".jpeg")
HEAT_MAPS = "heat_maps"  # folder below output_dir that inference writes pictures to


def list_images(folder: str | Path, output_dir: str | Path | None = None) -> list[str]:
    """Return the images of a folder at any depth, sorted: .dcm, .png, .jpg, and DICOM files without an ending.

    Hidden files and folders are ignored, and so are the heat maps that an earlier inference wrote.

    Args:
        folder: where the images are.
        output_dir: where inference writes; None = elsewhere.

    Raises:
        BundleInputError: no such folder, or no image in it.
    """
    root = Path(folder)
    written = Path(output_dir, HEAT_MAPS).resolve() if output_dir is not None else None
    found = sorted(str(path) for path in root.rglob("*") if _is_image(path, root, written)) if root.is_dir() else []
    if not found:
        raise BundleInputError(f"{root} holds no .dcm, .png or .jpg file; set dataset_dir to a folder of chest X-rays")
    return found


def _is_image(path: Path, root: Path, written: Path | None) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    if hidden or not path.is_file() or (written is not None and written in path.resolve().parents):
        return False
    return path.suffix.lower() in ENDINGS or (not path.suffix and _is_dicom(path))


def _is_dicom(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(DICOM_OFFSET + len(DICOM))[DICOM_OFFSET:] == DICOM
    except OSError:
        return False
