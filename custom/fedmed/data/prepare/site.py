"""Make a site from a folder of CT volumes: datalist, site YAML, report; completely or not at all."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmed.data.prepare.case import Case
from fedmed.data.prepare.place import DATALIST, PREPARED, link_or_copy, publish, staging_for
from fedmed.data.prepare.pool import Track, inspect_all
from fedmed.data.prepare.report import require_used
from fedmed.data.prepare.scan import find_sources
from fedmed.data.prepare.split import assign
from fedmed.data.prepare.write import require_readable, write_files
from fedmed.errors import DataError


@dataclass(frozen=True)
class Prepared:
    """The result for a folder: the site's folder, where its data are, every case, and masks that fit no image."""

    out: Path
    data_root: Path
    cases: list[Case]
    stray_masks: list[Path]


def prepare_site(
    folder: Path,
    out: Path,
    site: str,
    *,
    masks: Path | None = None,
    mask_suffix: str | None = None,
    image_suffix: str | None = None,
    role: str | None = None,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    patient_pattern: str | None = None,
    workers: int = 1,
    copy: bool = False,
    track: Track | None = None,
) -> Prepared:
    """Check every volume below ``folder`` and write the site folder ``out``.

    NIfTI files stay where they are and the datalist points at them. When there are DICOM series (converted to NIfTI),
    or with ``copy``, all images are in ``out/prepared`` instead.

    Args:
        folder, masks, mask_suffix, image_suffix, patient_pattern: see :func:`fedmed.data.prepare.scan.find_sources`.
        out: site folder; what an earlier preparation left there is replaced, other files are not touched.
        site: the site's name in the federation.
        role: ``labelled`` or ``unlabelled``; None means labelled if ``masks`` or ``mask_suffix`` is given.
        fractions: training, validation, testing.
        seed: of the split.
        workers: processes that read images.
        copy: link (or copy) NIfTI files into ``out`` too.
        track: see :func:`fedmed.data.prepare.pool.inspect_all`.

    Raises:
        DataError: wrong arguments, nothing usable, or a labelled site without any foreground; nothing is written.
    """
    out = Path(out).expanduser().resolve()
    role = role or ("labelled" if masks or mask_suffix else "unlabelled")
    sources, stray = find_sources(folder, masks, mask_suffix, patient_pattern, image_suffix, [out / PREPARED])
    if not sources:
        raise DataError(f"{folder}: no NIfTI file (.nii, .nii.gz) and no DICOM series at any depth")
    with staging_for(out) as staging:
        cases = inspect_all(sources, staging / PREPARED / "images", workers, track=track)
        fill_lists(cases, role, fractions, seed)
        require_usable(cases, role, fractions, folder)
        data_root = _data_root(folder, masks, out, copy or any(source.dicom for source in sources))
        if data_root == out:
            _gather(cases, staging)
        settings = {"folder": folder, "masks": masks or mask_suffix, "role": role, "split": fractions, "seed": seed}
        write_files(staging, out, site, data_root, cases, settings, stray)
        require_readable(staging / DATALIST, staging if data_root == out else data_root)
        publish(staging, out)
        _settle(cases, staging, out)
    return Prepared(out, data_root, cases, stray)


def fill_lists(cases: Sequence[Case], role: str, fractions: Sequence[float], seed: int) -> None:
    """Set ``lists`` of every case; a usable case that fits into no list gets a note."""
    assigned = assign(cases, role, fractions, seed)
    for case in cases:
        case.lists = [assigned[case.case]] if case.case in assigned else []
        if case.usable and not case.lists:
            case.notes.append("left out: without a mask, and its patient is in validation or testing")


def require_usable(cases: Sequence[Case], role: str, fractions: Sequence[float], folder: Path) -> None:
    """Raise DataError when nothing usable remains, or when a labelled site has nothing to learn from."""
    require_used(cases, folder, "volumes")
    labelled = [case for case in cases if case.usable and case.mask_ml is not None]
    if role == "labelled" and not labelled:
        raise DataError(f"{folder}: a labelled site needs masks, and no mask was found; give --masks or --mask-suffix")
    training = [case for case in labelled if "training" in case.lists]
    if role == "labelled" and fractions[0] > 0 and not any(case.mask_ml for case in training):
        raise DataError(f"{folder}: every training mask is empty, so there is no foreground to learn; check the masks")


def _data_root(folder: Path, masks: Path | None, out: Path, gather: bool) -> Path:
    """The folder that holds images and masks, or ``out`` when they have to be gathered there."""
    places = [Path(place).expanduser().resolve() for place in (folder, masks) if place]
    common = Path(os.path.commonpath(places))
    return out if gather or common == Path(common.anchor) else common


def _gather(cases: Sequence[Case], staging: Path) -> None:
    """Bring images and masks from elsewhere into the site folder: hard links if possible, else copies."""
    for case in cases:
        if case.lists:
            case.image = _link(case.image, staging, "images", case.case)
            case.mask = _link(case.mask, staging, "masks", case.case) if case.mask else None


def _settle(cases: Sequence[Case], staging: Path, out: Path) -> None:
    """Correct the cases' paths after the folder was renamed; a refused DICOM series has no file."""
    for case in cases:
        if case.image and case.image.is_relative_to(staging):
            case.image = out / case.image.relative_to(staging) if case.usable else None
        if case.mask and case.mask.is_relative_to(staging):
            case.mask = out / case.mask.relative_to(staging)


def _link(path: Path, staging: Path, kind: str, name: str) -> Path:
    if path.is_relative_to(staging):
        return path
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return link_or_copy(path, staging / PREPARED / kind / (name + suffix))
