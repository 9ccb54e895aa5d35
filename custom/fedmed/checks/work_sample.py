"""A few of a site's cases, on which its work in a job is measured."""

import json
from collections.abc import Sequence
from pathlib import Path

from fedmed.checks.entries import MEASURED, Cases, Entry, voxels
from fedmed.data.datalist import HELD_OUT
from fedmed.settings.site import SiteConfig

SAMPLE = 3  # cases of a list that are prepared
COMPARED = 16  # the same, where a kind of training has no labels and compares cases with each other


def choose_sample(entries: Sequence[Entry], cases: Cases, role: str, labelled: bool = True) -> list[Entry]:
    """Return some usable entries of each list that ``role`` works with in a round.

    They are the largest, which need most memory; one of them has foreground, or one of them each class. Empty when the
    role's first list has none; without labels in training, when no list has any.
    """
    chosen: list[Entry] = []
    for key in MEASURED[role]:
        usable = [entry for entry in entries if entry.list == key and (entry not in cases or cases[entry].usable)]
        usable.sort(key=lambda entry: (-voxels(entry, cases), entry.number))
        if any(entry.label for entry in usable):
            needed = list({entry.label: entry for entry in reversed(usable)}.values())
        else:
            needed = [entry for entry in usable if entry not in cases or cases[entry].mask_ml][:1]
        most = 1 if key in HELD_OUT else SAMPLE if labelled else COMPARED
        chosen += list(dict.fromkeys([*needed, *usable]))[: max(len(needed), most)]
    lists = MEASURED[role][:1] if labelled else MEASURED[role]
    return chosen if any(entry.list in lists for entry in chosen) else []


def write_datalist(folder: Path, site: SiteConfig, sample: Sequence[Entry]) -> Path:
    """Write a datalist of the sample alone, for the measuring process."""
    lists: dict[str, list[dict[str, str]]] = {}
    for entry in sample:
        files = {entry.main: entry.image, "labels": entry.table}
        files["label" if entry.main == "image" else "masks"] = entry.mask
        relative = {name: path.relative_to(site.data_root).as_posix() for name, path in files.items() if path}
        lists.setdefault(entry.list, []).append(relative | ({"label": entry.label} if entry.label else {}))
    path = folder / "datalist.json"
    path.write_text(json.dumps(lists), encoding="utf-8")
    return path
