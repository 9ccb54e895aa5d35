"""Find the CT volumes of a folder and the masks that belong to them. Only names and DICOM headers are read."""

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fedmed.data.prepare.case import Source, Volume
from fedmed.data.prepare.dicom_folder import checked_series, likeness
from fedmed.data.prepare.dicom_headers import read_header
from fedmed.data.prepare.dicom_slices import Slice, depths
from fedmed.data.prepare.folder import compile_pattern, existing, patient_in, readable_kind, visible_files
from fedmed.errors import DataError

NIFTI = (".nii.gz", ".nii")
LONGEST = 200  # bytes of a case's name; a file's may have 255, with its ending


def find_volumes(
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
        patient_pattern: regular expression searched in the path relative to ``folder``, without extension; its first
            group, or else the full match, is the patient. Without it, each NIfTI file counts as a separate patient and
            a DICOM series belongs to its PatientID.
        image_suffix: what the name of a NIfTI image has after the name of its case (``_0000``, ``_ct``); files without
            it are ignored.
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
    image_folder_suffix = suffix if masks in (None, folder) else ""  # of masks among the images
    mask_files: set[Path] = set()
    if masks and masks != folder:
        mask_files.update(path for _, files in visible_files(masks, ()) for path in files if is_nifti(path))
    place = masks or (folder if suffix else None)
    sources: list[Source] = []
    taken: set[str] = set()
    keys: dict[str, Path] = {}
    for key, files, series, fault in join_series(_volumes(folder, skip)):
        if image_folder_suffix and not series and key.endswith(image_folder_suffix):
            mask_files.add(files[0])
            continue
        if image_suffix and not series:
            if not key.endswith(image_suffix):
                continue
            key = key.removesuffix(image_suffix)
        case = _unique(key.replace("/", "_"), taken)
        mask = _mask_of(place, key, case, suffix) if place else None
        said = series or pattern is not None
        patient, unknown = patient_in(pattern, key, key) if pattern else (None if series else case, "")
        fault = fault or unknown or ("" if series else _twice(files[0], keys))
        sources.append(Source(case, files, patient, mask, fault=fault, series=series, patient_said=said))
    return sources, sorted(mask_files - {source.mask for source in sources})


def _volumes(folder: Path, skip: Collection[Path]) -> Iterator[Volume]:
    """Each NIfTI file and DICOM series, sorted by path."""
    for here, files in visible_files(folder, skip):
        for path in files:
            if is_nifti(path):
                yield Volume(_without_ending(path.relative_to(folder).as_posix()), (path,), series=False)
        if any(readable_kind(path) == "DICOM" for path in files if not is_nifti(path)):
            name = folder.name if here == folder else here.relative_to(folder).as_posix()
            series = checked_series(here)
            for number, (slices, fault) in enumerate(series, start=1):
                yield Volume(name if len(series) == 1 else f"{name}/series{number}", slices, True, fault)


def require_masks_found(sources: Sequence[Source], stray: Sequence[Path], masks: Path) -> None:
    """Refuse a folder of masks of which none is named as an image.

    Raises:
        DataError: the first mask and the first image, and the ``--mask-suffix`` that their names suggest.
    """
    if not stray or any(source.mask for source in sources):
        return
    names = [_without_ending(source.files[0].name) for source in sources if not source.series]
    mask_names = [_without_ending(path.name) for path in stray]
    mask_first = f"'{mask_names[0]}'" + (f" beside '{names[0]}'" if names else "")
    ends = Counter(mask.removeprefix(name) for mask in mask_names for name in names if mask.startswith(name))
    remedy = f"say --mask-suffix '{ends.most_common(1)[0][0]}'" if ends else "rename the masks, or see docs/data/ct.md"
    raise DataError(
        f"{masks}: no mask was found: none of {len(stray)} is named as an image, such as {mask_first}; {remedy}"
    )


def is_nifti(path: Path) -> bool:
    """True where a name ends like NIfTI, in small or capital letters."""
    return path.name.lower().endswith(NIFTI)


def _without_ending(name: str) -> str:
    return re.sub(r"\.nii(\.gz)?$", "", name, flags=re.IGNORECASE)


def _twice(path: Path, keys: dict[str, Path]) -> str:
    """Refuse ``a.nii.gz`` beside ``a.nii``: nobody knows which one the mask and the patient belong to."""
    first = keys.setdefault(_without_ending(str(path)), path)
    return "" if first == path else f"{path.name} lies beside {first.name}, which is used; keep one of the two"


def _mask_of(place: Path, key: str, case: str, suffix: str) -> Path | None:
    endings = (*NIFTI, *(ending.upper() for ending in NIFTI))
    names = [f"{name}{suffix}{ending}" for name in (key, case) for ending in endings]
    return next((place / name for name in names if os.path.isfile(place / name)), None)  # False for a long name


def _unique(name: str, taken: set[str]) -> str:
    if len(name.encode(errors="replace")) > LONGEST:
        short = name.encode(errors="replace")[: LONGEST - 9].decode(errors="ignore")
        name = f"{short}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    taken.add(candidate)
    return candidate


def join_series(volumes: Iterable[Volume]) -> list[Volume]:
    """Return the volumes with the parts of each series joined, in the order of their slices.

    Parts have one SeriesInstanceUID and orientation, lie in folders of their own, and none of their slices is at the
    place of another's: copies of a series are left as they are. A part with a fault gives it to the others.
    """
    volumes, parts = list(volumes), defaultdict(list)
    series = [volume for volume in volumes if volume.series]
    for volume in series if len(series) > 1 else ():
        if (alike := likeness(volume.files[0]))[0]:
            parts[alike].append(volume)
    joined: dict[Volume, Volume | None] = {}  # the first part becomes the whole, the others nothing
    for members in parts.values():
        if 1 < len(members) == len({part.files[0].parent for part in members}) and (whole := _joined(members)):
            joined |= {part: whole if part is members[0] else None for part in members}
    return [new for volume in volumes if (new := joined.get(volume, volume))]


def _joined(members: Sequence[Volume]) -> Volume | None:
    """One volume of several; None where they are no parts of one."""
    files = tuple(path for part in members for path in part.files)
    try:
        depth = depths([Slice(path, read_header(path)) for path in files])
    except (DataError, AttributeError, TypeError, ValueError):  # whoever reads the parts says so
        return None
    if len(np.unique(depth.round(2))) < len(files):
        return None
    common = PurePosixPath(os.path.commonpath([f"./{part.key}" for part in members])).as_posix()
    key = common if common != "." else members[0].files[0].parent.parent.name
    fault = next((part.fault for part in members if part.fault), "")
    return Volume(key, tuple(files[n] for n in np.argsort(depth)), True, fault)
