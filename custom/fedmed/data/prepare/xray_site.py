"""Make a site from a folder of X-rays: datalist, site YAML, report; completely or not at all."""

import importlib
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.data.image_size import file_fault
from fedmed.data.patients import folded
from fedmed.data.prepare.case import Source, XrayCase, content_hash, pseudonym
from fedmed.data.prepare.dicom_headers import quiet
from fedmed.data.prepare.folder import (
    DICOM_ENDINGS,
    LEFT,
    PREPARED,
    compile_pattern,
    existing,
    file_kind,
    files_left,
    link_or_copy,
    patient_in,
    readable_kind,
    staging_for,
    visible_files,
)
from fedmed.data.prepare.pool import DIED, Track, run_all
from fedmed.data.prepare.report import Prepared, Rows, listed, note_counts, refusals, require_used
from fedmed.data.prepare.split import (
    divides,
    fill_lists,
    patient_warnings,
    refuse_copied_images,
    refuse_shared_prefixes,
    unite_patients,
)
from fedmed.data.prepare.write import find_results, results_left_out, write_site
from fedmed.data.prepare.xray_labels import (
    Row,
    check_labels,
    merge_labels,
    no_labels,
    parse_merges,
    read_table,
    settle_labels,
)
from fedmed.data.prepare.xray_view import TAKEN, WantedViews, count_views, view_of
from fedmed.errors import DataError, first_line
from fedmed.files import SHIPPED, folders_of
from fedmed.optional import needs

with needs("dicom", "DICOM files"):
    import pydicom

REMEDY = "Say it in a column of the table (--patient-column), or with --patient-pattern"
COLUMNS = (
    *("case", "patient", "status", "list", "label", "reason", "notes"),
    *("kind", "modality", "view", "rows", "columns", "low", "high"),
)
PICTURES = (".png", ".jpg", ".jpeg", *DICOM_ENDINGS, ".bmp", ".tif", ".tiff", ".gif", ".webp")
MODALITIES = ("CR", "DX")  # computed and digital radiography
MIN_SIDE = 32  # pixels; a smaller image is a thumbnail
BUNDLE, READER = "cxr_classification", "cxr_classifier/readers.py"  # which trains on radiographs


@dataclass(frozen=True)
class Labels:
    """Source of labels and patients, and what counts as a label."""

    table: Path | None = None  # CSV of files, labels, patients and views
    columns: Mapping[str, str] = field(default_factory=dict)  # of the table, see read_table
    merge: Sequence[str] = ()  # new=old1,old2 each
    classes: Sequence[str] = ()  # the only ones allowed, in the order of the report; empty means those that are found
    separator: str = ""  # between the findings of one cell; "" = a cell holds one
    uncertain: str = ""  # what becomes of -1 beside 1 and 0: drop, negative or positive; "" = there is none
    ignore: bool = False  # whether all images go to "unlabeled", whatever their labels


def prepare_xray_site(
    folder: Path,
    out: Path,
    site: str,
    *,
    labels: Labels = Labels(),
    wanted: WantedViews = TAKEN,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    patient_pattern: str | None = None,
    workers: int = 1,
    copy: bool = False,
    own_patients: bool = False,
    track: Track[XrayCase] | None = None,
) -> Prepared:
    """Check every image below ``folder`` and write the site folder ``out``.

    Images stay where they are and the datalist points at them; with ``copy`` they are linked or copied to
    ``out/prepared``.

    Args:
        folder: images at any depth; the table's files are relative to it.
        out, site, seed, own_patients, workers, track: see :func:`fedmed.data.prepare.ct_site.prepare_site`.
        labels: see :class:`Labels`.
        wanted: views and body parts; images of others are refused.
        fractions: training, validation, testing, of the patients with a label.
        patient_pattern: see :func:`fedmed.data.prepare.xray_site.find_xrays`.

    Raises:
        DataError: wrong arguments, or nothing usable; nothing is written.
    """
    folder, out = Path(folder).expanduser().resolve(), Path(out).expanduser().resolve()
    result_folders = find_results(existing(folder, "the folder of images"), [out])
    result_lines = results_left_out(folder, result_folders)
    sources, missing, notes = _find(folder, labels, patient_pattern, [out / PREPARED, *result_folders], result_lines)
    with staging_for(out) as staging:
        apart = any(readable_kind(source.files[0]) == "DICOM" for source in sources)  # its decoders may take any memory
        work = partial(inspect_xray, wanted=wanted)
        cases = run_all(work, sources, workers, track, apart=apart, died=lambda one: work(replace(one, fault=DIED)))
        refuse_copied_images(cases)
        notes += unite_patients(cases)
        labelled = not labels.ignore and any(case.label for case in cases)
        if labelled and not own_patients and divides(fractions):
            refuse_shared_prefixes(cases, folder, "image", REMEDY)
        fill_lists(cases, fractions, seed, labels.ignore)
        classes = list(labels.classes) or sorted({case.label for case in cases if case.lists and case.label})
        require_used(cases, folder, "images")
        for case in cases if copy else ():
            if case.lists:
                case.image = link_or_copy(case.found, staging / PREPARED / "images" / case.case)
        read = {path for source in sources for path in source.files}
        read |= {labels.table.resolve()} if labels.table else set()
        unnamed = "" if labels.table else "--table reads the labels of one"
        left = result_lines + files_left([folder], read, [out, staging, *result_folders], unnamed)
        prepared = _prepared(out, out if copy else folder, cases, classes, missing, notes, left)
        settings = {
            "folder": folder, "table": labels.table, "merged": "; ".join(labels.merge) or None,
            "between findings": labels.separator or None, "uncertain findings": labels.uncertain or None,
            "classes": ", ".join(classes) or None, "views": ", ".join(wanted.views) or "all but from the side",
            "body parts": ", ".join(wanted.parts) or "chest", "split": tuple(fractions), "seed": seed,
        }  # fmt: skip
        write_site(prepared, staging, site, settings)
    return prepared


def _find(
    folder: Path, labels: Labels, patient_pattern: str | None, skip: Sequence[Path], results: Sequence[str]
) -> tuple[list[Source], list[str], list[str]]:
    """The images of a folder, files of the table that are not there, and what to tell of labels; DataError without."""
    merged = parse_merges(labels.merge)
    notes: list[str] = []
    table = read_table(labels.table, labels.columns) if labels.table else None
    if table and labels.table and not labels.ignore:
        how = (labels.separator, labels.uncertain, labels.classes, merged, labels.table)
        table, notes = settle_labels(table, *how)
        notes += no_labels(labels.table, labels.columns, table)
    renamed = merge_labels(table or {}, merged, labels.table)
    if not labels.ignore:
        counted = {row.label for row in renamed.values() if not labels.classes or row.label in labels.classes}
        notes += check_labels(counted, labels.table)
    sources = find_xrays(folder, table and renamed, patient_pattern, labels.classes, skip)
    by_name, without = rows_by_name([source.case for source in sources], renamed)
    if without:
        notes.append(f"the table names its files without {without}; they were found by their names, no two alike")
        renamed, sources = by_name, find_xrays(folder, by_name, patient_pattern, labels.classes, skip)
    missing = sorted(renamed.keys() - {source.case for source in sources})
    if not sources:
        raise DataError("; ".join([f"{folder}: no PNG, JPEG or DICOM file at any depth", *results]))
    if missing and all(source.fault for source in sources):
        where = f"{labels.table}: none of its files is in {folder}, the first is '{missing[0]}'"
        first = f"; the first there is '{sources[0].case}'"
        raise DataError(f"{where}{first}: paths must be relative to the folder, or names that only one image has")
    return sources, missing, notes


def _prepared(
    out: Path,
    data_root: Path,
    cases: Sequence[XrayCase],
    classes: Sequence[str],
    missing: Sequence[str],
    notes: Sequence[str],
    left: Sequence[str],
) -> Prepared:
    sections = {
        "Refused": refusals(cases),
        "Worth a look": [*notes, *_single_class(cases), *note_counts(cases)],
        "In the table, but not in the folder": missing,
        LEFT: left,
    }
    first = patient_warnings(cases, "image", REMEDY)
    rows = _list_table(cases, classes)
    return Prepared(out, data_root, cases, "images", COLUMNS, rows, sections, classes, first=first)


def _list_table(cases: Sequence[XrayCase], classes: Sequence[str]) -> Rows:
    """Rows (list, images, patients, images of each class, views, shorter side in pixels), a heading first."""
    rows: Rows = [("list", "images", "patients", *classes, "views", "pixels, shorter side")]
    for name, images in listed(cases).items():
        counts = [sum(case.label == label for case in images) for label in classes]
        low, high = (side(min(case.shape) for case in images) for side in (min, max))
        size = f"{low}" if low == high else f"{low} … {high}"
        shown = ["–" if name == "unlabeled" else str(count) for count in counts]
        views, patients = count_views(case.view for case in images), len({case.patient for case in images})
        rows.append((name, str(len(images)), str(patients), *shown, views, size))
    return rows


def _single_class(cases: Sequence[XrayCase]) -> list[str]:
    """A warning if training has one class: the site can pre-train and take part, but cannot learn to classify alone."""
    trained = {case.label for case in cases if "training" in case.lists}
    if len(trained) != 1:
        return []
    return [f"every label in training is '{trained.pop()}': without other sites' classes nothing can be learned"]


def find_xrays(
    folder: Path,
    table: Mapping[str, Row] | None = None,
    patient_pattern: str | None = None,
    classes: Sequence[str] = (),
    skip: Collection[Path] = (),
) -> list[Source]:
    """Find PNG, JPEG and DICOM files at any depth of ``folder``, sorted by path.

    Args:
        folder: where the images are. Hidden files and folders are ignored.
        table: file → label, patient and view; files that it does not name are refused if their patient is unknown.
        patient_pattern: searched in the path relative to ``folder``, without extension; its first group, or else the
            full match, is the patient. It is used where the table names no patient. Without both, a DICOM file belongs
            to its PatientID and any other file counts as a separate patient.
        classes: the only classes that are allowed, if there are some; images of others are refused.
        skip: folders that are not entered.

    Raises:
        DataError: ``folder`` is not a folder or cannot be listed, or the pattern is not a regular expression.
    """
    folder = existing(folder, "the folder of images")
    pattern = compile_pattern(patient_pattern)
    sources = []
    for path in _images(folder, {Path(place).resolve() for place in skip}):
        name = path.relative_to(folder).as_posix()
        row = (table or {}).get(name)
        patient, fault = _patient(path, name, row, pattern, table is not None)
        said, row = patient != name, row or Row("", None)
        fault = fault or row.fault
        if row.label and classes and row.label not in classes:
            fault = fault or f"its label '{row.label}' is not one of {', '.join(classes)}"
        sources.append(Source(name, (path,), patient, None, row.label, row.view, fault, patient_said=said))
    return sources


def rows_by_name(names: Sequence[str], rows: Mapping[str, Row]) -> tuple[dict[str, Row], str]:
    """Give each row the path of its image, where no row has one and names without folder or ending tell them all.

    Args:
        found: paths of the images.
        rows: file → row of the table.

    Returns:
        The rows, and what their files are named without; "" where they stay as they are, since a row has a path, or a
        name fits several images: it would be a guess whose label an image gets.
    """
    if not rows.keys() & set(names):
        for what, key in {"folder": _without_folder, "folder and ending": _without_ending}.items():
            named = {key(path): path for path in names}
            if len(named) == len(names) and named.keys() & rows.keys():
                return {named.get(name, name): row for name, row in rows.items()}, what
    return dict(rows), ""


def _without_folder(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _without_ending(path: str) -> str:
    return _without_folder(path).rsplit(".", 1)[0]


def _patient(
    path: Path, name: str, row: Row | None, pattern: re.Pattern[str] | None, has_table: bool
) -> tuple[str | None, str]:
    """Patient (None: the DICOM header may tell) and fault."""
    if row and row.patient:
        return row.patient, ""
    if pattern:
        return patient_in(pattern, name.rsplit(".", 1)[0], name)
    if readable_kind(path) == "DICOM":
        return None, ""
    if has_table and row is None:
        return "", "not in the table, so its patient is unknown"
    return name, ""


def _images(folder: Path, skip: Collection[Path]) -> Iterator[Path]:
    """Files that are images by their content or by their name, in the order of their paths."""
    files = sorted(path for _, files in visible_files(folder, skip) for path in files)
    return (path for path in files if path.suffix.lower() in PICTURES or readable_kind(path))


def inspect_xray(source: Source, wanted: WantedViews = TAKEN) -> XrayCase:
    """Check and measure one image. Never raises for bad data: the returned case lists the faults."""
    (path,) = source.files
    view = source.view.upper()
    case = XrayCase(source.case, source.patient or source.case, path, path, label=source.label, view=view)
    case.patient_said = source.patient_said
    if source.fault:
        case.faults.append(source.fault)
        return case
    try:
        if fault := file_fault(path):
            raise DataError(fault)
        case.kind = file_kind(path) or ""
        if not case.kind:
            raise DataError("not a PNG, JPEG or DICOM file, or damaged at its start")
        header = _read_header(source, case) if case.kind == "DICOM" else {}
        if fault := wanted.fault(case.view, str(header.get("BodyPartExamined") or "")):
            raise DataError(f"{fault}; --view and --body-part say what to take")
        _measure(_stored(path), case)
    except DataError as error:
        case.faults.append(str(error))
    except OSError as error:
        case.faults.append(f"unreadable ({error.strerror or error})")
    except MemoryError:
        case.faults.append("does not fit into memory; prepare with fewer workers")
    return case


def _stored(path: Path) -> np.ndarray:
    """Stored grey values (H, W) of an image that training will read; DataError with the reason if it would not."""
    read, refusal = _reader()
    try:
        return read(path)[0]
    except refusal as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        raise DataError(str(error).replace(str(path), "").lstrip(": ")) from error


@cache
def _reader() -> tuple[Callable[[Path], tuple[np.ndarray, np.ndarray]], type[Exception]]:
    """The bundle's function that reads an image, and the error with which it refuses one."""
    folders = [folder / BUNDLE for folder in (*folders_of("bundles", "FEDMED_BUNDLES"), SHIPPED / "bundles")]
    root = next((folder for folder in folders if (folder / READER).is_file()), None)
    if root is None:
        raise DataError(f"the bundle '{BUNDLE}', whose reader is needed, is not in {folders[-1]}; install it there")
    if str(root) not in sys.path:  # a bundle stands alone: its package is imported from its own folder
        sys.path.insert(0, str(root))
    readers = importlib.import_module("cxr_classifier.readers")
    return readers.read_stored, importlib.import_module("cxr_classifier.errors").BundleInputError


def _measure(values: np.ndarray, case: XrayCase) -> None:
    """Set size, range, content and what is wrong with grey values (H, W)."""
    rows, columns = case.shape = values.shape
    if min(values.shape) < MIN_SIDE:
        raise DataError(f"{columns}×{rows} pixels: a thumbnail; at least {MIN_SIDE} are needed")
    case.low, case.high = int(values.min()), int(values.max())
    if len(np.unique(values)) < 32:
        case.notes.append("fewer than 32 grey levels: a mask, or a poor export?")
    if max(values.shape) > 2 * min(values.shape):
        case.notes.append("one side is more than twice the other: an image of the full spine, or a strip?")
    case.content = content_hash(values)


def _read_header(source: Source, case: XrayCase) -> Any:
    """The header of a single radiograph; fills in what it says."""
    try:
        with quiet():
            header = pydicom.dcmread(case.found, force=True, stop_before_pixels=True)
    except Exception as error:  # noqa: BLE001 - a damaged file makes pydicom fail in many ways
        raise DataError(f"damaged DICOM ({first_line(error)})") from error
    with quiet():
        case.modality, case.view = str(header.get("Modality") or ""), case.view or view_of(header)
        if source.patient is None:
            patient = str(header.get("PatientID") or "")
            case.patient, case.patient_key = pseudonym(patient) or source.case, folded(patient)
            case.patient_said = case.patient != source.case
            if not case.patient_said:
                case.notes.append("no PatientID; counted as a separate patient")
    if case.modality and case.modality not in MODALITIES:
        raise DataError(f"DICOM modality is {case.modality}, not {' or '.join(MODALITIES)}")
    return header
