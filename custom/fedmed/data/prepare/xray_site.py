"""Make a site from a folder of X-rays: datalist, site YAML, report; completely or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fedmed.data.prepare.case import Source, XrayCase
from fedmed.data.prepare.folder import existing, readable_kind
from fedmed.data.prepare.label_split import fill_lists, refuse_copied_images
from fedmed.data.prepare.left_files import LEFT, files_left
from fedmed.data.prepare.own_results import own_folders, own_lines
from fedmed.data.prepare.patients import patient_warnings, refuse_shared_prefixes, unite_patients
from fedmed.data.prepare.place import PREPARED, link_or_copy, staging_for
from fedmed.data.prepare.pool import DIED, Track, run_all
from fedmed.data.prepare.report import Prepared, Rows, listed, note_counts, refusals, require_used
from fedmed.data.prepare.split import divides
from fedmed.data.prepare.write import write_site
from fedmed.data.prepare.xray_find import find_xrays
from fedmed.data.prepare.xray_inspect import inspect_xray
from fedmed.data.prepare.xray_labels import check_labels, settle_labels
from fedmed.data.prepare.xray_table import merge_labels, no_labels, parse_merges, read_table
from fedmed.data.prepare.xray_view import TAKEN, WantedViews, count_views
from fedmed.errors import DataError

REMEDY = "Say it in a column of the table (--patient-column), or with --patient-pattern"
COLUMNS = (
    *("case", "patient", "status", "list", "label", "reason", "notes"),
    *("kind", "modality", "view", "rows", "columns", "low", "high"),
)


@dataclass(frozen=True)
class Labels:
    """Where labels and patients come from."""

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
        out: site folder; what an earlier preparation left there is replaced, other files are not touched.
        site: the site's name in the federation.
        labels: see :class:`Labels`.
        wanted: views and body parts; images of others are refused.
        fractions: training, validation, testing, of the patients with a label.
        seed: of the split.
        patient_pattern: see :func:`fedmed.data.prepare.xray_find.find_xrays`.
        copy: link (or copy) the images into ``out`` too.
        own_patients: whether each file is another patient's, though names look as if several were of one.
        workers, track: see :func:`fedmed.data.prepare.pool.run_all`.

    Raises:
        DataError: wrong arguments, or nothing usable; nothing is written.
    """
    folder, out = Path(folder).expanduser().resolve(), Path(out).expanduser().resolve()
    own = own_folders(existing(folder, "the folder of images"), [out])
    results = own_lines(folder, own)
    sources, missing, told = _find(folder, labels, patient_pattern, [out / PREPARED, *own], results)
    with staging_for(out) as staging:
        apart = any(readable_kind(source.files[0]) == "DICOM" for source in sources)  # its decoders may take any memory
        cases = run_all(partial(inspect_xray, wanted=wanted), sources, workers, track, apart=apart, died=_died)
        refuse_copied_images(cases)
        told += unite_patients(cases)
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
        left = results + files_left([folder], read, [out, staging, *own])
        prepared = _prepared(out, out if copy else folder, cases, classes, missing, told, left)
        settings = {
            "folder": folder, "table": labels.table, "merged": "; ".join(labels.merge) or None,
            "between findings": labels.separator or None, "uncertain findings": labels.uncertain or None,
            "classes": ", ".join(classes) or None, "views": ", ".join(wanted.views) or "all but from the side",
            "body parts": ", ".join(wanted.parts) or "chest", "split": tuple(fractions), "seed": seed,
        }  # fmt: skip
        write_site(prepared, staging, site, settings)
    return prepared


def _died(source: Source) -> XrayCase:
    return inspect_xray(replace(source, fault=DIED))


def _find(
    folder: Path, labels: Labels, patient_pattern: str | None, skip: Sequence[Path], results: Sequence[str]
) -> tuple[list[Source], list[str], list[str]]:
    """The images of a folder, files of the table that are not there, and what to tell of labels; DataError without."""
    merged = parse_merges(labels.merge)
    told: list[str] = []
    table = read_table(labels.table, labels.columns) if labels.table else None
    if table and labels.table and not labels.ignore:
        how = (labels.separator, labels.uncertain, labels.classes, merged, labels.table)
        table, told = settle_labels(table, *how)
        told += no_labels(labels.table, labels.columns, table)
    renamed = merge_labels(table or {}, merged, labels.table)
    if not labels.ignore:
        counted = {row.label for row in renamed.values() if not labels.classes or row.label in labels.classes}
        told += check_labels(counted, labels.table)
    sources = find_xrays(folder, table and renamed, patient_pattern, labels.classes, skip)
    missing = sorted(renamed.keys() - {source.case for source in sources})
    if not sources:
        raise DataError("; ".join([f"{folder}: no PNG, JPEG or DICOM file at any depth", *results]))
    if missing and all(source.fault for source in sources):
        where = f"{labels.table}: none of its files is in {folder}, the first is '{missing[0]}'"
        raise DataError(f"{where}; paths must be relative to it")
    return sources, missing, told


def _prepared(
    out: Path,
    data_root: Path,
    cases: Sequence[XrayCase],
    classes: Sequence[str],
    missing: Sequence[str],
    told: Sequence[str],
    left: Sequence[str],
) -> Prepared:
    sections = {
        "Refused": refusals(cases),
        "Worth a look": [*told, *_single_class(cases), *note_counts(cases)],
        "In the table, but not in the folder": missing,
        LEFT: left,
    }
    first = patient_warnings(cases, "image", REMEDY)
    return Prepared(
        out, data_root, cases, "images", COLUMNS, _list_table(cases, classes), sections, classes, first=first
    )


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
    return [
        f"every label in training is '{trained.pop()}': without other sites' classes nothing can be learned or scored"
    ]
