"""The images of a hospital: what may be learnt from, and what is only tested on.

Splits are by patient and depend on names alone: no seed, no order of a file.
"""

import csv
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmed.data.datalist import UNLABELED, case_names
from fedmed.errors import DataError
from fedmed.settings.site import SiteConfig
from research.runner.site_lists import listed

COLUMNS = ("file", "label", "patient")


@dataclass(frozen=True)
class ImageCase:
    """One image."""

    image: str  # path below the hospital's data folder
    label: str | None  # name of its class; None where nobody has given one
    patient: str  # images of one patient stay together in every split and every resample


@dataclass(frozen=True)
class Hospital:
    """A site's images."""

    config: SiteConfig  # the site's settings; its datalist is not used
    training: Sequence[ImageCase]  # images that pre-training and downstream training may see
    testing: Sequence[ImageCase]  # images of other patients


def hospital_of_table(config: SiteConfig, table: Path, tested: bool) -> Hospital:
    """A hospital whose labels lie in a CSV with the columns ``file``, ``label``, ``patient``.

    If it is ``tested``, half of the patients are held out; the halves depend on nothing but their names and labels.

    Raises:
        DataError: the file is missing or has other columns, or a cell is empty; names file and line.
    """
    try:
        with Path(table).open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table} cannot be read: {error}; it lists images as {','.join(COLUMNS)}") from error
    for number, row in enumerate(rows, start=2):
        if lacking := [column for column in COLUMNS if not row.get(column)]:
            raise DataError(f"{table}, line {number} has no '{lacking[0]}'; each line is {','.join(COLUMNS)}")
    cases = [ImageCase(row["file"], row["label"], row["patient"]) for row in rows]
    return Hospital(config, *(halves(cases, "test") if tested else (cases, [])))


def hospital_of_site(config: SiteConfig) -> Hospital:
    """A hospital with a datalist of its own: ``training`` and ``unlabeled`` are learnt from, ``testing`` is not."""
    return Hospital(config, _listed(config, "training") + _listed(config, UNLABELED), _listed(config, "testing"))


def _listed(config: SiteConfig, key: str) -> list[ImageCase]:
    """Cases of one list; where nobody has looked, a label is not known."""
    entries = listed(config.datalist, key)
    labels = [None if key == UNLABELED else entry.get("label") for entry in entries]
    patients = [str(entry.get("patient", name)) for entry, name in zip(entries, case_names(entries), strict=True)]
    return [ImageCase(str(e["image"]), label, p) for e, label, p in zip(entries, labels, patients, strict=True)]


def node_images(
    hospital: Hospital, split: int, size: float | None, kind: str | None, healthy: Sequence[str]
) -> dict[str, list[ImageCase]]:
    """The nodes that a hospital becomes, with their training images.

    Args:
        split: number of nodes, 1 or 2, of different patients.
        size: share of its images; None = all.
        kind: ``healthy`` or ``diseased``: only such images, and none whose label nobody knows; None = all.
        healthy: its labels that mean no disease.
    """
    cases = list(hospital.training)
    if kind:
        cases = [c for c in cases if c.label is not None and (c.label in set(healthy)) == (kind == "healthy")]
    if size is not None:
        cases = share(cases, size, "size")
    name = hospital.config.site
    if split == 1:
        return {name: cases}
    return dict(zip((f"{name}_1", f"{name}_2"), halves(cases, "nodes"), strict=True))


def halves(cases: Sequence[ImageCase], purpose: str) -> tuple[list[ImageCase], list[ImageCase]]:
    """Two parts with no patient in both, equal in images as nearly as patients allow, and so in each class.

    Each part keeps the order of the cases; two purposes split differently.
    """
    sizes = Counter(case.patient for case in cases)
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        labels[case.patient].add(str(case.label))
    counts: defaultdict[frozenset[str], list[int]] = defaultdict(lambda: [0, 0])  # images of each part, by classes
    second: set[str] = set()
    # Those with many images first: what remains uneven is then the last patient with one or two.
    for patient in sorted(sizes, key=lambda name: (-sizes[name], _key(name, purpose))):
        counted = counts[frozenset(labels[patient])]
        part = int(counted[1] < counted[0])
        counted[part] += sizes[patient]
        if part:
            second.add(patient)
    return [c for c in cases if c.patient not in second], [c for c in cases if c.patient in second]


def share(cases: Sequence[ImageCase], fraction: float, purpose: str) -> list[ImageCase]:
    """About ``fraction`` (0..1) of the images, whole patients; a smaller share is part of a larger one."""
    sizes, wanted = Counter(case.patient for case in cases), math.ceil(fraction * len(cases) - 1e-9)
    chosen: set[str] = set()
    for patient in sorted(sizes, key=lambda name: _key(name, purpose)):
        if wanted <= 0:
            break
        chosen.add(patient)
        wanted -= sizes[patient]
    return [case for case in cases if case.patient in chosen]


def _key(name: str, purpose: str) -> str:
    return hashlib.sha256(f"{purpose}\x1f{name}".encode()).hexdigest()
