"""Make a site from a folder of X-rays: datalist, site YAML, report; completely or not at all."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedmed.data.prepare.place import DATALIST, PREPARED, link_or_copy, publish, staging_for
from fedmed.data.prepare.pool import Track, run_all
from fedmed.data.prepare.report import require_used
from fedmed.data.prepare.split import split_patients
from fedmed.data.prepare.write import require_readable
from fedmed.data.prepare.xray_case import XrayCase
from fedmed.data.prepare.xray_find import find_xrays, require_some
from fedmed.data.prepare.xray_inspect import inspect
from fedmed.data.prepare.xray_table import Columns, check_used, merge_of, read_table
from fedmed.data.prepare.xray_write import write_xray_files


@dataclass(frozen=True)
class Labels:
    """Where labels and patients come from.

    Attributes:
        table: CSV of files, labels and patients, or None.
        columns: names of its columns.
        named: attributes of ``columns`` that the table must have.
        merge: ``new=old1,old2`` each.
        classes: the only classes that are allowed, in the order of the report; empty means those that are found.
        ignore: whether all images go to ``unlabeled``, whatever their labels.
    """

    table: Path | None = None
    columns: Columns = field(default_factory=Columns)
    named: Sequence[str] = ()
    merge: Sequence[str] = ()
    classes: Sequence[str] = ()
    ignore: bool = False


@dataclass(frozen=True)
class PreparedXrays:
    """The result for a folder: the site's folder, where its data are, every image, the classes, files not found."""

    out: Path
    data_root: Path
    cases: list[XrayCase]
    classes: list[str]
    missing: list[str]


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
    track: Track | None = None,
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
        workers: processes that read images.
        copy: link (or copy) the images into ``out`` too.
        track: see :func:`fedmed.data.prepare.pool.run_all`.

    Raises:
        DataError: wrong arguments, or nothing usable; nothing is written.
    """
    folder, out = Path(folder).expanduser().resolve(), Path(out).expanduser().resolve()
    merged = merge_of(labels.merge)
    rows = read_table(labels.table, labels.columns, labels.named) if labels.table else None
    check_used(merged, rows or {}, labels.table)
    sources, missing = find_xrays(folder, rows, patient_pattern, merged, labels.classes, [out / PREPARED])
    require_some(sources, folder, labels.table, missing)
    with staging_for(out) as staging:
        cases = run_all(inspect, sources, workers, track)
        refuse_copies(cases)
        fill_lists(cases, fractions, seed, labels.ignore)
        classes = list(labels.classes) or sorted({case.label for case in cases if case.lists and case.label})
        require_used(cases, folder, "images")
        data_root = out if copy else folder
        if copy:
            _gather(cases, staging)
        settings = {
            "folder": folder, "table": labels.table, "merged": "; ".join(labels.merge) or None,
            "classes": ", ".join(classes) or None, "split": tuple(fractions), "seed": seed,
        }  # fmt: skip
        write_xray_files(staging, out, site, data_root, cases, classes, settings, missing)
        require_readable(staging / DATALIST, staging if copy else data_root, classes)
        publish(staging, out)
    return PreparedXrays(out, data_root, cases, classes, missing)


def refuse_copies(cases: Sequence[XrayCase]) -> None:
    """Keep one of several equal images, if possible a labelled one; refuse all of them if their labels differ."""
    groups: dict[str, list[XrayCase]] = defaultdict(list)
    for case in cases:
        if case.usable:
            groups[case.content].append(case)
    for group in groups.values():
        labels = sorted({case.label for case in group if case.label})
        kept, *others = sorted(group, key=lambda case: (not case.label, case.case))
        for case in others:
            owner = "" if case.patient == kept.patient else f" of another patient, '{kept.patient}'"
            case.faults.append(f"same pixels as '{kept.case}'{owner}; one image counts once")
        if len(labels) > 1:
            kept.faults.append(f"same pixels as '{others[0].case}', but different labels: {', '.join(labels)}")


def fill_lists(cases: Sequence[XrayCase], fractions: Sequence[float], seed: int, ignore: bool = False) -> None:
    """Set ``lists`` of every usable image: a patient is in one of training, validation and testing.

    Images without a label are ``unlabeled``, but left out where their patient is validated or tested on.
    """
    usable = [case for case in cases if case.usable]
    names = {} if ignore else stratified(usable, fractions, seed)
    for case in usable:
        held = names.get(case.patient)
        if case.label and held:
            case.lists = [held]
        elif held in (None, "training"):
            case.lists = ["unlabeled"]
        else:
            case.notes.append("left out: without a label, and its patient is in validation or testing")


def stratified(cases: Sequence[XrayCase], fractions: Sequence[float], seed: int) -> dict[str, str]:
    """Patient → list, for patients with a label; each class is divided by ``fractions``, rounded to patients.

    A patient with several classes counts for the rarest of them.
    """
    held: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        if case.label:
            held[case.patient].add(case.label)
    counts = Counter(label for labels in held.values() for label in labels)
    strata: dict[str, list[str]] = defaultdict(list)
    for patient, labels in held.items():
        strata[min(labels, key=lambda label: (counts[label], label))].append(patient)
    split: dict[str, str] = {}
    for label in sorted(strata):
        split |= split_patients(strata[label], fractions, seed)
    return split


def _gather(cases: Collection[XrayCase], staging: Path) -> None:
    """Bring the images into the site folder: hard links if possible, else copies."""
    for case in cases:
        if case.lists:
            case.image = link_or_copy(case.image, staging / PREPARED / "images" / case.case)
