"""Find the images to infer."""

import logging
from collections import defaultdict
from pathlib import Path

from covid_ct.errors import BundleInputError

log = logging.getLogger("covid_ct")
ENDINGS = (".nii.gz", ".nii")  # in small or capital letters


def list_images(folder: str | Path, postfix: str = "") -> list[str]:
    """Return the NIfTI files of a folder, sorted. Hidden files, such as macOS' ``._a.nii.gz``, are ignored.

    Args:
        folder: not searched below.
        postfix: of the masks that are written. Masks of an earlier inference into the same folder are left out, and
            the log says how many.

    Raises:
        BundleInputError: no such folder, no NIfTI file in it, or two of one name, whose masks would be one file.
    """
    root, named = Path(folder), defaultdict(list)
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if not path.name.startswith(".") and path.is_file() and (stem := nifti_stem(path.name)):
            named[stem].append(path)
    earlier = {stem for stem in named if postfix and stem.removesuffix(f"_{postfix}") in named.keys() - {stem}}
    if earlier:
        log.warning("%s: %d masks of an earlier inference are left out, such as %s", root, len(earlier), min(earlier))
    for stem, paths in named.items():
        if len(paths) > 1 and stem not in earlier:
            names = " and ".join(path.name for path in paths)
            raise BundleInputError(f"{root} holds {names}, whose masks would have one name; rename one of them")
    files = [str(path) for stem, paths in named.items() if stem not in earlier for path in paths]
    if not files:
        below = next((path for path in sorted(root.rglob("*")) if path.is_file() and nifti_stem(path.name)), None)
        what = "set dataset_dir to a folder of chest CTs"
        if below:
            what = f"those below, such as {below.relative_to(root)}, are not looked for: set dataset_dir to their "
            what += "folder, or link all of them into one, each with a name of its own"
        raise BundleInputError(f"{root} holds no .nii or .nii.gz file; {what}")
    return sorted(files)


def nifti_stem(name: str) -> str:
    """A file's name without its ending; "" for one that is not NIfTI."""
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    return name[: -len(ending)] if ending else ""
