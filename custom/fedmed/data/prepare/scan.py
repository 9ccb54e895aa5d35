"""Find the CT volumes of a folder and the masks that belong to them. Only names and DICOM headers are read."""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from fedmed.data.prepare.case import Source
from fedmed.errors import DataError

NIFTI = (".nii.gz", ".nii")


def find_sources(
    folder: Path,
    masks: Path | None = None,
    mask_suffix: str | None = None,
    patient_pattern: str | None = None,
    image_suffix: str | None = None,
    skip: Collection[Path] = (),
) -> tuple[list[Source], list[Path]]:
    """Find NIfTI files and DICOM series at any depth of ``folder``.

    Args:
        folder: where the volumes are. Hidden files and folders are ignored.
        masks: folder of the masks; the mask of ``a/b.nii.gz`` is ``a/b.nii.gz`` or ``a/b.nii`` there, that of the DICOM
            series ``a/b`` is ``a/b.nii.gz`` or, named by its case, ``a_b.nii.gz``.
        mask_suffix: what the name of a mask has after the name of its case (``_seg``). Without ``masks``, masks are
            next to their images.
        image_suffix: what the name of a NIfTI image has after the name of its case (``_0000``, ``_ct``); files without
            it are ignored.
        patient_pattern: regular expression searched in the path relative to ``folder``, without extension; its first
            group, or else the full match, is the patient. Without it, each NIfTI file counts as a separate patient and
            a DICOM series belongs to its PatientID.
        skip: folders that are not entered.

    Returns:
        The sources, sorted by path, and the mask files that belong to no image.

    Raises:
        DataError: ``folder`` or ``masks`` is not a folder, a folder in it cannot be listed, or the pattern is not a
            regular expression.
    """
    folder = existing(folder, "the folder of volumes")
    masks = existing(masks, "the folder of masks") if masks else None
    pattern = compile_pattern(patient_pattern)
    skip = {Path(path).resolve() for path in skip} | ({masks} if masks and masks != folder else set())
    suffix = mask_suffix or ""
    suffix_beside = suffix if masks in (None, folder) else ""  # of masks among the images
    found, taken = [], set()
    mask_files = set(_nifti_files(masks)) if masks and masks != folder else set()
    for key, files, dicom in _volumes(folder, skip):
        if suffix_beside and not dicom and key.endswith(suffix_beside):
            mask_files.add(files[0])
        elif dicom or not image_suffix:
            found.append((key, files, dicom))
        elif key.endswith(image_suffix):
            found.append((key.removesuffix(image_suffix), files, dicom))
    sources = []
    for key, files, dicom in found:
        case = _unique(key.replace("/", "_"), taken)
        place = masks or (folder if suffix else None)
        mask = _mask_of(place, key, case, suffix) if place else None
        sources.append(Source(case, key, files, mask, _patient(pattern, key, case, dicom), dicom))
    return sources, sorted(mask_files - {source.mask for source in sources})


def existing(folder: Path, what: str) -> Path:
    """The absolute path of a folder; ``what`` names it in the error when it does not exist."""
    folder = Path(folder).expanduser().resolve()
    if not folder.is_dir():
        raise DataError(f"{what}, {folder}, does not exist; correct the path or mount it")
    return folder


def compile_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """The patient pattern as a regular expression; DataError if it is not one."""
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise DataError(f"--patient-pattern '{pattern}' is not a regular expression ({error})") from error


def _volumes(folder: Path, skip: Collection[Path]) -> Iterator[tuple[str, tuple[Path, ...], bool]]:
    """Yield (key, files, is DICOM) in the order of the paths."""
    for place, folders, names in os.walk(folder, onerror=unlisted):
        here = Path(place)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and here / f not in skip)
        visible = sorted(name for name in names if not name.startswith("."))
        for name in visible:
            if name.endswith(NIFTI):
                yield _relative(here / name, folder), (here / name,), False
        if any(_is_dicom(here / name) for name in visible if not name.endswith(NIFTI)):
            yield from _series(here, folder)


def unlisted(error: OSError) -> None:
    """``os.walk`` would skip a folder that it may not enter, and the scans in it would be missing without notice."""
    raise DataError(f"the folder {error.filename} cannot be listed ({error.strerror}); allow it or move it away")


def _series(here: Path, folder: Path) -> Iterator[tuple[str, tuple[Path, ...], bool]]:
    from fedmed.data.prepare.dicom import series_in  # ITK takes seconds to load and NIfTI folders do not need it

    key = "" if here == folder else here.relative_to(folder).as_posix()
    series = series_in(here)
    for number, files in enumerate(series, start=1):
        name = key or folder.name
        yield (name if len(series) == 1 else f"{name}/series{number}"), files, True


def _is_dicom(path: Path) -> bool:
    """A DICOM file has the letters DICM after 128 bytes; old files without them are known by their extension."""
    if path.name == "DICOMDIR":
        return False
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM" or path.suffix.lower() in (".dcm", ".ima")
    except OSError:
        return False


def _nifti_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.name.endswith(NIFTI) and not path.name.startswith("."))


def _relative(path: Path, folder: Path) -> str:
    name = path.relative_to(folder).as_posix()
    return name.removesuffix(".gz").removesuffix(".nii")


def _mask_of(place: Path, key: str, case: str, suffix: str) -> Path | None:
    names = [f"{name}{suffix}{ending}" for name in (key, case) for ending in NIFTI]
    return next((place / name for name in names if (place / name).is_file()), None)


def _patient(pattern: re.Pattern[str] | None, key: str, case: str, dicom: bool) -> str | None:
    if pattern is None:
        return None if dicom else case
    match = pattern.search(key)
    return (match.group(1) if pattern.groups else match.group()) if match else ""


def _unique(name: str, taken: set[str]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    taken.add(candidate)
    return candidate
