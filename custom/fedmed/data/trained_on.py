"""How many labelled and unlabelled images, of how many patients, a site trains on: said at the site, never sent."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedmed.data.datalist import list_entries
from fedmed.data.patient_ids import folded

WHAT = ("image", "video")


@dataclass(frozen=True)
class TrainedOn:
    """What the rounds of a site read.

    Attributes:
        labelled, unlabelled: images, or videos, whose labels count and whose do not.
        labelled_patients, unlabelled_patients: whose they are; None where the datalist does not say it of all.
        listed: labelled images of the training list, of which the job may take a part.
        what: ``image`` or ``video``.
    """

    labelled: int = 0
    unlabelled: int = 0
    labelled_patients: int | None = None
    unlabelled_patients: int | None = None
    listed: int = 0
    what: str = "image"

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
        found = []
        if self.labelled or not self.unlabelled:
            many = self.listed if self.labelled < self.listed else self.labelled
            found.append(f"{part} labelled {_of(self.what, many, self.labelled_patients)}")
        if self.unlabelled:
            found.append(f"{self.unlabelled} unlabelled {_of(self.what, self.unlabelled, self.unlabelled_patients)}")
        return " and ".join(found)

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
    whose = "" if patients is None else f" of {patients} {'patient' if patients == 1 else 'patients'}"
    return f"{what}{'s' * (many != 1)}{whose}"


def _people(files: Iterable[str], patients: Mapping[str, str | None]) -> int | None:
    owners = {patients.get(file) for file in files}
    return None if None in owners else len(owners)


def owners(data_root: Path, datalist: Path, key: str, what: str = "image") -> dict[str, str | None]:
    """File of each entry of a list -> whose it is, all spellings of an id alike; None where the entry says nothing.

    Entries that are none are left out: whoever trains on the list refuses them.

    Raises:
        DataError: the datalist cannot be read, or ``key`` is no list in it.
    """
    found: dict[str, str | None] = {}
    for entry in list_entries(datalist, key):
        if isinstance(entry, Mapping) and isinstance(entry.get(what), str):
            said = entry.get("patient")
            found[str(data_root / entry[what])] = None if said in (None, "") else folded(str(said))
    return found
