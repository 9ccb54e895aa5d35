"""Read every entry of a site's datalist and go on where training would stop: a check names all that is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.checks.findings import Finding
from fedmed.data.datalist import UNLABELED, labels_are_classes, listed_file, needed_files, read_datalist
from fedmed.errors import DataError
from fedmed.settings.site import SiteConfig

SCORED = ("validation", "testing")
LISTS = ("training", *SCORED, UNLABELED)
NEEDED = {"supervised": ("training", "validation"), "unsupervised": (UNLABELED,), "evaluate": ("testing",)}
MEASURED = {**NEEDED, "unsupervised": (UNLABELED, "training")}  # what a role's rounds read
PICTURES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")
USED = {role: tuple(dict.fromkeys((*lists, "testing"))) for role, lists in MEASURED.items()}


@dataclass(frozen=True)
class Entry:
    """One entry of the datalist.

    Attributes:
        list, number: where it stands, counted from 0.
        image, mask: files that exist; the mask of an ``unlabeled`` entry is ignored, as in training.
        patient: who it belongs to, or None when the datalist does not say.
        label: name of its class, where labels are no masks.
    """

    list: str
    number: int
    image: Path
    mask: Path | None = None
    patient: str | None = None
    label: str | None = None

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
    labelled = (content.get(key) for key in LISTS if key != UNLABELED)
    classes = labels_are_classes(entry for listed in labelled if isinstance(listed, list) for entry in listed)
    for key in LISTS:
        listed = content.get(key, [])
        if not isinstance(listed, list):
            findings.append(Finding("data", "entry", f"{site.datalist}: '{key}' is not a list; write [ … ]", key))
            continue
        counts[key] = len(listed)
        for number, value in enumerate(listed):
            files, faults = _files(site.data_root, key, number, value, classes)
            findings += faults
            if not faults:
                patient = None if value.get("patient") is None else str(value["patient"])
                label = value["label"] if classes and key != UNLABELED else None
                entries.append(Entry(key, number, *files, patient=patient, label=label))
    return counts, entries, findings


def needs(
    counts: Mapping[str, int],
    role: str | None,
    datalist: Path,
    *,
    classes: bool = False,
    chooses: bool = True,
    contrastive: bool = False,
    scores: bool = True,
) -> Iterator[Finding]:
    """Say which lists a role needs and lacks, and which it does not use.

    Args:
        counts: list -> number of entries.
        role: the site's.
        datalist: for messages.
        classes: labels are classes; a classifier leaves unlabelled images to another job, the pre-training.
        chooses: whether a model is chosen by validation lists.
        contrastive: the job trains without any label, on ``unlabeled`` and ``training`` together.
        scores: whether the result is scored on the testing lists.
    """
    if not any(counts.values()):
        hint = "scripts/prepare_ct.py or scripts/prepare_cxr.py writes one"
        yield Finding("data", "list", f"{datalist}: none of {', '.join(LISTS)} lists an image; {hint}")
    elif contrastive:
        if not counts.get(UNLABELED) and not counts.get("training"):
            text = f"neither '{UNLABELED}' nor 'training' lists an image, and pre-training needs some; fill one"
            yield Finding("data", "list", f"{datalist}: {text}", UNLABELED)
        return
    for key in NEEDED.get(role or "", ()):
        if not counts.get(key) and (chooses or key != "validation"):
            yield Finding(
                "data", "list", f"{datalist}: the list '{key}' is empty, and the role '{role}' needs it; fill it", key
            )
    if role == "supervised" and counts.get(UNLABELED) and not classes:
        text = f"{counts[UNLABELED]} unlabelled scans are not used by a supervised site; 'unsupervised' uses both lists"
        yield Finding("data", "unused", f"{datalist}: {text}", UNLABELED)
    if role in ("supervised", "unsupervised") and not counts.get("testing") and scores:
        text = "there is no 'testing' list, so the finished model is not scored here; list some cases if it should be"
        yield Finding("data", "not_scored", f"{datalist}: {text}", "testing")


def are_pictures(entries: Sequence[Entry]) -> bool:
    """Whether a site has radiographs and no CT: its labels are classes, or each image is a picture or a DICOM file."""
    if any(entry.label for entry in entries):
        return True
    return bool(entries) and all(entry.image.suffix.lower() in PICTURES and not entry.mask for entry in entries)


def _files(root: Path, key: str, number: int, value: Any, classes: bool) -> tuple[list[Path], list[Finding]]:
    """Image and mask of an entry, found as training finds them, and what is wrong with either."""
    files, faults = [], {}
    if classes and key != UNLABELED and isinstance(value, Mapping) and not isinstance(value.get("label"), str):
        text = f"{key}, entry {number} has no class as its 'label'; name it, or list the image under '{UNLABELED}'"
        faults[text] = Finding("data", "entry", text, key, number)
    for name in needed_files(key, classes):
        try:
            files.append(listed_file(root, f"{key}, entry {number}", name, value))
        except DataError as error:
            kind = "missing" if "does not exist" in str(error) or "cannot be reached" in str(error) else "entry"
            faults[str(error)] = Finding("data", kind, str(error), key, number)
    return files, list(faults.values())
