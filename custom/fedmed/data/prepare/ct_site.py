"""Make a site from a folder of CT volumes: datalist, site YAML, report; completely or not at all."""

import os
from collections.abc import Sequence
from pathlib import Path

from fedmed.data.prepare.case import Case
from fedmed.data.prepare.ct_find import find_volumes, require_masks_found
from fedmed.data.prepare.ct_inspect import inspect_all, list_table
from fedmed.data.prepare.folder import LEFT, PREPARED, existing, files_left, link_or_copy, staging_for
from fedmed.data.prepare.pool import Track
from fedmed.data.prepare.report import AXES, Prepared, note_counts, refusals, require_used
from fedmed.data.prepare.split import assign, divides, patient_warnings, refuse_shared_prefixes, unite_patients
from fedmed.data.prepare.volume_faults import BINARY, Foreground
from fedmed.data.prepare.write import find_results, inference_masks, results_left_out, write_site
from fedmed.errors import DataError

REMEDY = "Say it with --patient-pattern"
COLUMNS = (
    *("case", "patient", "status", "list", "reason", "notes"),
    *(f"voxels_{axis}" for axis in AXES),
    *(f"spacing_{axis}_mm" for axis in AXES),
    *("hu_min", "hu_mean", "hu_max", "mask_ml", "found", "image", "mask"),
)


def prepare_site(
    folder: Path,
    out: Path,
    site: str,
    *,
    masks: Path | None = None,
    mask_suffix: str | None = None,
    image_suffix: str | None = None,
    foreground: Foreground = BINARY,
    role: str | None = None,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    patient_pattern: str | None = None,
    workers: int = 1,
    copy: bool = False,
    own_patients: bool = False,
    track: Track[Case] | None = None,
) -> Prepared:
    """Check every volume below ``folder`` and write the site folder ``out``.

    NIfTI files stay where they are and the datalist points at them. When there are DICOM series (converted to NIfTI),
    when masks are written anew, or with ``copy``, all images are in ``out/prepared`` instead.

    Args:
        folder, masks, mask_suffix, image_suffix, patient_pattern: see :func:`fedmed.data.prepare.ct_find.find_volumes`.
        out: site folder; what an earlier preparation left there is replaced, other files are not touched.
        site: the site's name in the federation.
        foreground: which values of a mask count.
        role: ``labelled`` or ``unlabelled``; None means labelled if ``masks`` or ``mask_suffix`` is given.
        fractions: training, validation, testing.
        seed: of the split.
        copy: link (or copy) NIfTI files into ``out`` too.
        own_patients: whether each file is another patient's, though names look as if several were of one.
        workers, track: see :func:`fedmed.data.prepare.pool.run_all`.

    Raises:
        DataError: wrong arguments, nothing usable, or a labelled site without any foreground; nothing is written.
    """
    out = Path(out).expanduser().resolve()
    role = role or ("labelled" if masks or mask_suffix else "unlabelled")
    folder = existing(folder, "the folder of volumes")
    masks = existing(masks, "the folder of masks") if masks else None
    result_folders = find_results(folder, [out])
    skip = [out / PREPARED, *result_folders]
    sources, stray = find_volumes(folder, masks, mask_suffix, patient_pattern, image_suffix, skip)
    result_masks = inference_masks([source.files[0] for source in sources if not source.series])
    sources = [source for source in sources if source.files[0] not in result_masks]
    # Not those of MONAI Label that are given as masks.
    unread = {at: by for at, by in result_folders.items() if not masks or not masks.is_relative_to(at)}
    results = results_left_out(folder, unread, result_masks)
    if not sources:
        raise DataError("; ".join([f"{folder}: no NIfTI file (.nii, .nii.gz) and no DICOM series", *results]))
    if masks:
        require_masks_found(sources, stray, masks)
    with staging_for(out) as staging:
        cases = inspect_all(sources, staging / PREPARED, workers, track=track, foreground=foreground)
        united = unite_patients(cases)
        if any(case.mask for case in cases) and not own_patients and divides(fractions):
            refuse_shared_prefixes(cases, folder, "scan", REMEDY)
        fill_lists(cases, role, fractions, seed)
        require_usable(cases, role, fractions, folder)
        written = any(path and path.is_relative_to(staging) for case in cases for path in (case.image, case.mask))
        data_root = _data_root(folder, masks, out, copy or written)
        if data_root == out:
            _gather(cases, staging)
        # Files that become volumes and masks, or that the report names already.
        read = {path for source in sources for path in (*source.files, source.mask) if path} | {*stray, *result_masks}
        left = results + files_left([folder, *([masks] if masks else [])], read, [out, staging, *result_folders])
        prepared = prepared_volumes(out, data_root, cases, stray, left, united)
        settings = {"folder": folder, "masks": masks or mask_suffix, "role": role, "split": fractions, "seed": seed}
        names = {"image suffix": image_suffix, "mask suffix": mask_suffix, "patient pattern": patient_pattern}
        settings |= {what: text for what, text in names.items() if text}
        settings |= {"mask values": foreground.words} if foreground.converts else {}
        write_site(prepared, staging, site, settings)
    return prepared


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

    def bring(path: Path | None, kind: str, name: str) -> Path | None:
        if path is None or path.is_relative_to(staging):
            return path
        suffix = "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix
        return link_or_copy(path, staging / PREPARED / kind / (name + suffix))

    for case in cases:
        if case.lists:
            case.image, case.mask = bring(case.image, "images", case.case), bring(case.mask, "masks", case.case)


def prepared_volumes(
    out: Path,
    data_root: Path,
    cases: Sequence[Case],
    stray_masks: Sequence[Path] = (),
    left: Sequence[str] = (),
    united: Sequence[str] = (),
) -> Prepared:
    """Say what the report shows: of volumes, masks without an image, files ``left`` and patients ``united``."""
    sections = {
        "Refused": refusals(cases),
        "Worth a look": [*united, *note_counts(cases)],
        LEFT: left,
        "Masks without an image": [str(path) for path in stray_masks],
    }
    first = patient_warnings(cases, "scan", REMEDY)
    return Prepared(out, data_root, cases, "volumes", COLUMNS, list_table(cases), sections, first=first)
