"""Read every entry of a site's datalist and go on where training would stop: a check names all that is wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fedmed.checks.findings import Finding
from fedmed.data.datalist import UNLABELED, load_datalist, read_datalist
from fedmed.errors import DataError
from fedmed.federation.site import SiteConfig

SCORED = ("validation", "testing")
LISTS = ("training", *SCORED, UNLABELED)
NEEDED = {"supervised": ("training", "validation"), "unsupervised": (UNLABELED,), "evaluate": ("testing",)}
MEASURED = {**NEEDED, "unsupervised": (UNLABELED, "training")}  # what a role's rounds read
USED = {role: tuple(dict.fromkeys((*lists, "testing"))) for role, lists in MEASURED.items()}


@dataclass(frozen=True)
class Entry:
    """One entry of the datalist.

    Attributes:
        list, number: where it stands, counted from 0.
        image, mask: files that exist; the mask of an ``unlabeled`` entry is ignored, as in training.
        patient: who it belongs to, or None when the datalist does not say.
    """

    list: str
    number: int
    image: Path
    mask: Path | None = None
    patient: str | None = None

    @property
    def where(self) -> str:
        """For a sentence: list, entry and file."""
        return f"{self.list}, entry {self.number} ({self.image.name})"


def read_entries(site: SiteConfig) -> tuple[dict[str, int], list[Entry], list[Finding]]:
    """Return the length of each list, the entries whose files exist, and what is wrong with the others.

    Raises:
        DataError: the datalist itself cannot be read.
    """
    content = read_datalist(site.datalist)
    counts: dict[str, int] = {}
    entries: list[Entry] = []
    findings: list[Finding] = []
    for key in LISTS:
        listed = content.get(key, [])
        if not isinstance(listed, list):
            findings.append(Finding("data", "entry", f"{site.datalist}: '{key}' is not a list; write [ … ]", key))
            continue
        counts[key] = len(listed)
        for number, value in enumerate(listed):
            faults = list(_faults(site.data_root, key, number, value))
            findings += faults
            if not faults:
                entries.append(_entry(site.data_root, key, number, value))
    if not findings:
        findings += _as_training_reads(site)
    return counts, entries, findings


def needs(counts: Mapping[str, int], role: str | None, datalist: Path) -> Iterator[Finding]:
    """Say which lists a role needs and lacks, and which it does not use."""
    if not any(counts.values()):
        hint = "scripts/prepare_ct.py writes one"
        yield Finding("data", "list", f"{datalist}: none of {', '.join(LISTS)} lists an image; {hint}")
    for key in NEEDED.get(role or "", ()):
        if not counts.get(key):
            yield Finding(
                "data", "list", f"{datalist}: the list '{key}' is empty, and the role '{role}' needs it; fill it", key
            )
    if role == "supervised" and counts.get(UNLABELED):
        text = f"{counts[UNLABELED]} unlabelled scans are not used by a supervised site; 'unsupervised' uses both lists"
        yield Finding("data", "unused", f"{datalist}: {text}", UNLABELED)
    if role in ("supervised", "unsupervised") and not counts.get("testing"):
        text = "there is no 'testing' list, so the finished model is not scored here; list some cases if it should be"
        yield Finding("data", "not_scored", f"{datalist}: {text}", "testing")


def _faults(root: Path, key: str, number: int, value: Any) -> Iterator[Finding]:
    where = f"{key}, entry {number}"
    if not isinstance(value, Mapping):
        text = f'{where} is {value!r}; it must look like {{"image": "images/a.nii.gz"}}'
        yield Finding("data", "entry", text, key, number)
        return
    for name in ("image",) if key == UNLABELED else ("image", "label"):
        path = value.get(name)
        if path is None:
            hint = "; cases without a mask belong into 'unlabeled'" if name == "label" else ""
            yield Finding("data", "entry", f"{where} has no '{name}'{hint}", key, number)
        elif not _inside(path):
            text = f"{where}: '{name}' is {path!r}; it must be a path below the data folder {root}"
            yield Finding("data", "entry", text, key, number)
        elif not (root / path).is_file():
            text = f"{where}: the {name} {root / path} does not exist; restore it or remove the entry"
            yield Finding("data", "missing", text, key, number)


def _inside(path: Any) -> bool:
    if not isinstance(path, str) or not path or "\\" in path:
        return False
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts


def _entry(root: Path, key: str, number: int, value: Mapping[str, Any]) -> Entry:
    patient = value.get("patient")
    mask = None if key == UNLABELED else root / value["label"]
    return Entry(key, number, root / value["image"], mask, None if patient is None else str(patient))


def _as_training_reads(site: SiteConfig) -> Iterator[Finding]:
    """The reader of training has the last word: what it refuses may not pass here."""
    for key in LISTS:
        try:
            load_datalist(site.data_root, site.datalist, key, required=False)
        except DataError as error:
            yield Finding("data", "entry", str(error), key)
