"""Patients of a datalist: when two ids mean the same, and of how many a site trains on images; never sent."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedmed.data.datalist import HELD_OUT, LABELLED, UNLABELED, entries_of, list_entries, read_datalist
from fedmed.errors import DataError

BLOCKS_OF = "blocks_of"  # of an entry: blocks of one recording are in several lists on purpose
IN_TWO_LISTS = "a score would be too good: keep one list, or write another id if these are two patients"
WHAT = ("image", "video")


def stripped(patient: str) -> str:
    """An id without the blanks at either end, which mean nothing in DICOM and are typing errors in a table."""
    return patient.strip(" \t\r\n\0")


def folded(patient: str) -> str:
    """Common form of the spellings of one id: no blanks, small letters, numbers without leading zeros."""
    text = "".join(stripped(unicodedata.normalize("NFKC", patient)).casefold().split())
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def owner(entry: object) -> str | None:
    """Patient of an entry of a datalist, as :func:`folded`; None where it does not say it, or need not."""
    if not isinstance(entry, Mapping) or entry.get("patient") is None or entry.get(BLOCKS_OF):
        return None
    return folded(str(entry["patient"]))


def check_patients(datalist: Path) -> None:
    """Refuse a datalist that trains on a patient by whom a model is chosen or scored.

    Raises:
        DataError: numbers of two entries of one patient, whose id does not leave the site by it; or no readable list.
    """
    places: dict[str, dict[str, int]] = defaultdict(dict)
    content = read_datalist(datalist)
    for key in (*LABELLED, UNLABELED):
        for number, entry in enumerate(entries_of(content, datalist, key)):
            if (patient := owner(entry)) is not None:
                places[patient].setdefault(key, number)
    for held in places.values():
        if len(held) > 1 and set(held) & set(HELD_OUT):
            shown = " and ".join(f"entry {number} of '{key}'" for key, number in held.items())
            raise DataError(f"{datalist}: one patient is in two lists, {shown}; {IN_TWO_LISTS}")


@dataclass(frozen=True)
class TrainedOn:
    """Images or videos that the rounds of a site read."""

    labelled: int = 0  # whose labels count
    unlabelled: int = 0
    labelled_patients: int | None = None  # None where the datalist does not say it of all
    unlabelled_patients: int | None = None
    listed: int = 0  # labelled images of the training list, of which the job may take a part
    what: str = "image"  # or "video"

    @classmethod
    def of(
        cls,
        labelled: Iterable[str],
        unlabelled: Iterable[str],
        patients: Mapping[str, str | None],
        listed: int = 0,
        what: str = "image",
    ) -> "TrainedOn":
        """Count files, each once; ``patients``: file -> whose it is, None where nobody says it."""
        with_labels, without = set(labelled), set(unlabelled)
        people = (_people(with_labels, patients), _people(without, patients))
        return cls(len(with_labels), len(without), *people, max(listed, len(with_labels)), what)

    @property
    def words(self) -> str:
        """``3 of 88 labelled images of 3 patients and 12 unlabelled images of 5 patients``."""
        part = f"{self.labelled} of {self.listed}" if self.labelled < self.listed else str(self.labelled)
        parts = []
        if self.labelled or not self.unlabelled:
            many = self.listed if self.labelled < self.listed else self.labelled
            parts.append(f"{part} labelled {_of(self.what, many, self.labelled_patients)}")
        if self.unlabelled:
            parts.append(f"{self.unlabelled} unlabelled {_of(self.what, self.unlabelled, self.unlabelled_patients)}")
        return " and ".join(parts)

    def facts(self) -> dict[str, int | str]:
        """Plain values, without what is not known, from which :meth:`read` makes an equal object."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "TrainedOn | None":
        """Inverse of :meth:`facts`; other keys are left alone. None where a value cannot be."""
        said = {key: facts[key] for key in cls.__dataclass_fields__ if key in facts}
        numbers = [value for key, value in said.items() if key != "what"]
        sound = all(type(value) is int for value in numbers) and said.get("what") in WHAT
        return cls(**said) if sound else None


def _of(what: str, many: int, patients: int | None) -> str:
    suffix = "" if patients is None else f" of {patients} {'patient' if patients == 1 else 'patients'}"
    return f"{what}{'s' * (many != 1)}{suffix}"


def _people(files: Iterable[str], patients: Mapping[str, str | None]) -> int | None:
    owners = {patients.get(file) for file in files}
    return None if None in owners else len(owners)


def owners(data_root: Path, datalist: Path, key: str, what: str = "image") -> dict[str, str | None]:
    """File of each entry of a list -> whose it is, all spellings of an id alike; None where the entry says nothing.

    Entries that are none are left out: whoever trains on the list refuses them.

    Raises:
        DataError: the datalist cannot be read, or ``key`` is no list in it.
    """
    patients: dict[str, str | None] = {}
    for entry in list_entries(datalist, key):
        if isinstance(entry, Mapping) and isinstance(entry.get(what), str):
            said = entry.get("patient")
            patients[str(data_root / entry[what])] = None if said in (None, "") else folded(str(said))
    return patients
