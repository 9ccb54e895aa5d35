"""The images of a hospital: what may be learnt from, and what is only tested on."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.data.datalist import case_names, read_datalist
from fedmed.data.entry_forms import UNLABELED
from fedmed.errors import DataError
from fedmed.experiments.patient_splits import halves, share
from fedmed.settings.site import SiteConfig

COLUMNS = ("file", "label", "patient")


@dataclass(frozen=True)
class ImageCase:
    """One image.

    Attributes:
        image: path below the hospital's data folder.
        label: name of its class; None where nobody has given one.
        patient: images of one patient stay together in every split and every resample.
    """

    image: str
    label: str | None
    patient: str


@dataclass(frozen=True)
class Hospital:
    """A site's images.

    Attributes:
        config: the site's settings; its datalist is not used.
        training: images that pre-training and downstream training may see.
        testing: images of other patients.
    """

    config: SiteConfig
    training: tuple[ImageCase, ...]
    testing: tuple[ImageCase, ...]

    @property
    def name(self) -> str:
        return self.config.site

    def labelled(self, classes: Iterable[str]) -> list[ImageCase]:
        """Training cases of these classes."""
        wanted = set(classes)
        return [case for case in self.training if case.label in wanted]


def hospital_of_table(config: SiteConfig, table: Path, tested: bool) -> Hospital:
    """A hospital whose labels lie in a CSV with the columns ``file``, ``label``, ``patient``.

    Args:
        config: its settings.
        table: the CSV.
        tested: hold out half of the patients for tests; the halves depend on nothing but their names and labels.

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
    training, testing = halves(cases, "test") if tested else (cases, [])
    return Hospital(config, tuple(training), tuple(testing))


def hospital_of_site(config: SiteConfig) -> Hospital:
    """A hospital with a datalist of its own: ``training`` and ``unlabeled`` are learnt from, ``testing`` is not.

    Raises:
        DataError: the datalist cannot be read, or an entry has no image.
    """
    lists = read_datalist(config.datalist)
    training = _listed(config, lists, "training") + _listed(config, lists, UNLABELED)
    return Hospital(config, tuple(training), tuple(_listed(config, lists, "testing")))


def _listed(config: SiteConfig, lists: Mapping[str, Any], key: str) -> list[ImageCase]:
    entries = lists.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(e, Mapping) and e.get("image") for e in entries):
        raise DataError(f"{config.datalist}: '{key}' must be a list of entries that name an 'image'")
    labels = [None if key == UNLABELED else entry.get("label") for entry in entries]
    patients = [str(entry.get("patient", name)) for entry, name in zip(entries, case_names(entries), strict=True)]
    return [ImageCase(str(e["image"]), label, p) for e, label, p in zip(entries, labels, patients, strict=True)]


def node_images(
    hospital: Hospital, split: int, size: float | None, kind: str | None, healthy: Sequence[str]
) -> dict[str, list[ImageCase]]:
    """The nodes that a hospital becomes, with their training images.

    Args:
        hospital: which.
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
    if split == 1:
        return {hospital.name: cases}
    return dict(zip((f"{hospital.name}_1", f"{hospital.name}_2"), halves(cases, "nodes"), strict=True))
