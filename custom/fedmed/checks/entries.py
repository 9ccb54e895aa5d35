"""Read every entry of a site's datalist and go on where training would stop: a check names all that is wrong."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.checks.site_findings import SiteFinding, data_finding
from fedmed.data.datalist import LABELLED, UNLABELED, UnlabelledEntry, listed_file, read_datalist
from fedmed.data.patients import owner
from fedmed.data.prepare.case import Case
from fedmed.errors import DataError
from fedmed.kinds.kind import Kind
from fedmed.settings.site import SiteConfig

LISTS = (*LABELLED, UNLABELED)
NEEDED = {"supervised": ("training", "validation"), "unsupervised": (UNLABELED,), "evaluate": ("testing",)}
MEASURED = {**NEEDED, "unsupervised": (UNLABELED, "training")}  # what a role's rounds read
USED = {role: tuple(dict.fromkeys((*lists, "testing"))) for role, lists in MEASURED.items()}


@dataclass(frozen=True)
class Entry:
    """One entry of the datalist.

    Attributes:
        list, number: where it stands, counted from 0.
        image, mask: files that exist; the mask of an ``unlabeled`` entry is ignored, as in training. Of a video, the
            file or folder of frames, and the folder of its masks.
        patient: who it belongs to, or None when the datalist does not say.
        label: name of its class, where labels are not masks.
        table: of a video's labels by time.
        main: what the datalist calls ``image``: image or video.
        owner: what all spellings of ``patient`` have in common, or None where it may be in several lists.
    """

    list: str
    number: int
    image: Path
    mask: Path | None = None
    patient: str | None = None
    label: str | None = None
    table: Path | None = None
    main: str = "image"
    owner: str | None = None

    @property
    def where(self) -> str:
        """For a sentence: list, entry and file."""
        return f"{self.list}, entry {self.number} ({self.image.name})"


Cases = Mapping[Entry, Case]  # entry -> what its inspection found


def voxels(entry: Entry, cases: Cases) -> int:
    """Of an image that was not inspected the size of its file: a compressed CT has about one byte a voxel."""
    return math.prod(cases[entry].shape) if entry in cases else entry.image.stat().st_size


def count_lists(site: SiteConfig) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the datalist's content and the length of each list; DataError: the datalist itself cannot be read."""
    content = read_datalist(site.datalist)
    return dict(content), {key: len(listed) for key in LISTS if isinstance(listed := content.get(key, []), list)}


def read_entries(site: SiteConfig, form: UnlabelledEntry) -> tuple[list[Entry], list[SiteFinding]]:
    """Return the entries whose files exist, and what is wrong with the others; ``form``: how an entry looks.

    Raises:
        DataError: the datalist itself cannot be read.
    """
    content = read_datalist(site.datalist)
    entries: list[Entry] = []
    findings: list[SiteFinding] = []
    for key in LISTS:
        listed = content.get(key, [])
        if not isinstance(listed, list):
            findings.append(data_finding("entry", f"{site.datalist}: '{key}' is not a list; write [ … ]", key))
            continue
        for number, value in enumerate(listed):
            files, faults = _files(site.data_root, key, number, value, form)
            findings += faults
            if not faults:
                patient = None if value.get("patient") is None else str(value["patient"])
                label = form.word(key, value)
                mask, table = files.get("label") or files.get("masks"), files.get("labels")
                entries.append(
                    Entry(key, number, files[form.main], mask, patient, label, table, form.main, owner(value))
                )
    return entries, findings


def _files(
    root: Path, key: str, number: int, value: Any, form: UnlabelledEntry
) -> tuple[dict[str, Path], list[SiteFinding]]:
    """The files of an entry, found as training finds them, and what is wrong with it."""
    where = f"{key}, entry {number}"
    files: dict[str, Path] = {}
    faults: dict[str, SiteFinding] = {}  # by text: both files of a malformed entry give the same one
    if isinstance(value, Mapping) and (text := form.wrong(key, where, value)):
        faults[text] = data_finding("entry", text, key, number)
    for name in form.files(key):
        try:
            files[name] = listed_file(root, where, name, value)
        except DataError as error:
            kind = "missing" if "does not exist" in str(error) or "cannot be reached" in str(error) else "entry"
            faults[str(error)] = data_finding(kind, str(error), key, number)
    return files, list(faults.values())


def check_lists(
    counts: Mapping[str, int], role: str | None, datalist: Path, kind: Kind, chooses: bool = True, scores: bool = True
) -> Iterator[SiteFinding]:
    """Say which lists a role needs and lacks, and which it does not use.

    Args:
        counts: list -> number of entries.
        role, datalist, kind: the site's, for messages, and of the task.
        chooses, scores: whether a model is chosen by validation lists, and the result scored on testing lists.
    """
    if not any(counts.values()):
        hint = "fedmed prepare ct, cxr or video writes one"
        yield data_finding("list", f"{datalist}: none of {', '.join(LISTS)} lists an image or video; {hint}")
    elif not kind.labelled:  # trains on both lists of images together
        if not counts.get(UNLABELED) and not counts.get("training"):
            text = f"neither '{UNLABELED}' nor 'training' lists an image, and pre-training needs some; fill one"
            yield data_finding("list", f"{datalist}: {text}", UNLABELED)
        return
    alone = role == "unsupervised" and not kind.both_lists and counts.get("training")  # either list serves
    missing = [] if alone else [key for key in NEEDED.get(role or "", ()) if not counts.get(key)]
    for key in missing:
        if key != "validation":
            text = f"the list '{key}' is empty, and the role '{role}' needs it; fill it"
            yield data_finding("list", f"{datalist}: {text}", key)
        elif chooses:
            text = "there is no 'validation' list, so other sites choose the model, or the last round's counts"
            yield data_finding("not_validated", f"{datalist}: {text}; list some cases if this site should help", key)
    if role == "supervised" and counts.get(UNLABELED) and kind.both_lists:
        text = f"{counts[UNLABELED]} unlabelled scans are not used by a supervised site; 'unsupervised' uses both lists"
        yield data_finding("unused", f"{datalist}: {text}", UNLABELED)
    if role in ("supervised", "unsupervised") and not counts.get("testing") and scores:
        text = "there is no 'testing' list, so the finished model is not scored here; list some cases if it should be"
        yield data_finding("not_scored", f"{datalist}: {text}", "testing")
