"""Make a site from a folder of X-rays: datalist, site YAML, report; completely or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedmed.data.prepare.case import XrayCase
from fedmed.data.prepare.place import DATALIST, PREPARED, link_or_copy, publish, staging_for
from fedmed.data.prepare.pool import Track, run_all
from fedmed.data.prepare.report import Prepared, Rows, listed, note_counts, refusals, require_used, shortened
from fedmed.data.prepare.write import require_readable, write_files
from fedmed.data.prepare.xray_find import find_xrays
from fedmed.data.prepare.xray_inspect import inspect_xray
from fedmed.data.prepare.xray_split import fill_lists, refuse_copies
from fedmed.data.prepare.xray_table import merge_labels, parse_merges, read_table
from fedmed.errors import DataError


@dataclass(frozen=True)
class Labels:
    """Where labels and patients come from.

    Attributes:
        table: CSV of files, labels and patients, or None.
        columns: names of its columns, see :func:`fedmed.data.prepare.xray_table.read_table`.
        merge: ``new=old1,old2`` each.
        classes: the only classes that are allowed, in the order of the report; empty means those that are found.
        ignore: whether all images go to ``unlabeled``, whatever their labels.
    """

    table: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    merge: Sequence[str] = ()
    classes: Sequence[str] = ()
    ignore: bool = False


@dataclass(frozen=True)
class PreparedXrays(Prepared[XrayCase]):
    """A prepared site of X-rays, the classes, and files of the table that are not there."""

    classes: Sequence[str] = ()
    missing: Sequence[str] = ()

    what = "images"
    columns = (
        *("case", "patient", "status", "list", "label", "reason", "notes"),
        *("kind", "modality", "view", "rows", "columns", "low", "high"),
    )

    def by_list(self) -> Rows:
        """Rows (list, images, patients, images of each class, shorter side in pixels), a heading first."""
        rows: Rows = [("list", "images", "patients", *self.classes, "pixels, shorter side")]
        for name, cases in listed(self.cases).items():
            counts = [sum(case.label == label for case in cases) for label in self.classes]
            low, high = (side(min(case.shape) for case in cases) for side in (min, max))
            size = f"{low}" if low == high else f"{low} … {high}"
            shown = ["–" if name == "unlabeled" else str(count) for count in counts]
            rows.append((name, str(len(cases)), str(len({case.patient for case in cases})), *shown, size))
        return rows

    def sections(self, limit: int = 1000) -> dict[str, list[str]]:
        trained = {case.label for case in self.cases if "training" in case.lists}
        single = [  # the site can pre-train and take part, but not learn to classify alone
            f"every label in training is '{label}': without other sites' classes nothing can be learned or scored"
            for label in (trained if len(trained) == 1 else ())
        ]
        return {
            "Refused": refusals(self.cases, limit),
            "Worth a look": [*single, *note_counts(self.cases)],
            "In the table, but not in the folder": shortened(self.missing, limit),
        }


def prepare_xray_site(
    folder: Path,
    out: Path,
    site: str,
    *,
    labels: Labels = Labels(),
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    patient_pattern: str | None = None,
    workers: int = 1,
    copy: bool = False,
    track: Track[XrayCase] | None = None,
) -> PreparedXrays:
    """Check every image below ``folder`` and write the site folder ``out``.

    Images stay where they are and the datalist points at them; with ``copy`` they are linked or copied to
    ``out/prepared``.

    Args:
        folder: images at any depth; the table's files are relative to it.
        out: site folder; what an earlier preparation left there is replaced, other files are not touched.
        site: the site's name in the federation.
        labels: see :class:`Labels`.
        fractions: training, validation, testing, of the patients with a label.
        seed: of the split.
        patient_pattern: see :func:`fedmed.data.prepare.xray_find.find_xrays`.
        copy: link (or copy) the images into ``out`` too.
        workers, track: see :func:`fedmed.data.prepare.pool.run_all`.

    Raises:
        DataError: wrong arguments, or nothing usable; nothing is written.
    """
    folder, out = Path(folder).expanduser().resolve(), Path(out).expanduser().resolve()
    merged = parse_merges(labels.merge)
    rows = read_table(labels.table, labels.columns) if labels.table else None
    renamed = merge_labels(rows or {}, merged, labels.table)
    sources = find_xrays(folder, rows and renamed, patient_pattern, labels.classes, [out / PREPARED])
    missing = sorted(renamed.keys() - {source.case for source in sources})
    if not sources:
        raise DataError(f"{folder}: no PNG, JPEG or DICOM file at any depth")
    if missing and all(source.fault for source in sources):
        raise DataError(
            f"{labels.table}: none of its files is in {folder}, the first is '{missing[0]}'; paths must be relative "
            "to it"
        )
    with staging_for(out) as staging:
        cases = run_all(inspect_xray, sources, workers, track)
        refuse_copies(cases)
        fill_lists(cases, fractions, seed, labels.ignore)
        classes = list(labels.classes) or sorted({case.label for case in cases if case.lists and case.label})
        require_used(cases, folder, "images")
        for case in cases if copy else ():
            if case.lists:
                case.image = link_or_copy(case.found, staging / PREPARED / "images" / case.case)
        prepared = PreparedXrays(out, out if copy else folder, cases, classes, missing)
        settings = {
            "folder": folder, "table": labels.table, "merged": "; ".join(labels.merge) or None,
            "classes": ", ".join(classes) or None, "split": tuple(fractions), "seed": seed,
        }  # fmt: skip
        write_files(prepared, staging, site, settings)
        require_readable(staging / DATALIST, staging if copy else folder, classes)
        publish(staging, out)
    return prepared
