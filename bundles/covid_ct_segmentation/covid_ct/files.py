"""Find the images to infer."""

from pathlib import Path

from covid_ct.errors import BundleInputError


def list_images(folder: str | Path) -> list[str]:
    """Return the NIfTI files of a folder, sorted.

    Raises:
        BundleInputError: no such folder, or no NIfTI file in it.
    """
    root = Path(folder)
    files = sorted(str(path) for path in root.glob("*.nii*") if path.is_file()) if root.is_dir() else []
    if not files:
        raise BundleInputError(f"{root} holds no .nii or .nii.gz file; set dataset_dir to a folder of chest CTs")
    return files
