"""The datalist of a site as it will be when readers' masks have become training data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from fedmed.data.datalist import load_datalist
from fedmed.data.entry_forms import UNLABELED
from fedmed.data.prepare.ct_inspect import UNREADABLE
from fedmed.errors import DataError
from fedmed.labelling.masks import mask_bytes, read_grid, read_mask, volume_ml
from fedmed.labelling.studies import CORRECTED, LISTS
from fedmed.settings.site import SiteConfig

TRAINING, HELD_OUT = "training", ("validation", "testing")
NEW, REPLACED, UNCHANGED, LEFT, REFUSED = "new", "replaced", "unchanged", "left alone", "refused"


@dataclass(frozen=True)
class LabelOutcome:
    """What became of one saved label.

    Attributes:
        case: id of the image.
        done: ``new`` (now a training case), ``replaced``, ``unchanged``, ``left alone`` or ``refused``.
        note: the reason, or what else is worth knowing.
        ml: volume of the foreground, None where the label was not read.
    """

    case: str
    done: str
    note: str = ""
    ml: float | None = None


@dataclass
class CorrectionPlan:
    """The datalist as it will be, and the masks that it needs.

    Attributes:
        lists: content of the datalist, changed as labels are taken.
        masks: path relative to the data folder -> content of the file; compressed, for they are all kept at once.
        record: an entry for each of them.
        foreground: whether any of them has a foreground voxel.
    """

    site: SiteConfig
    lists: dict[str, Any]
    masks: dict[str, bytes] = field(default_factory=dict)
    record: list[dict[str, Any]] = field(default_factory=list)
    foreground: bool = False

    def __post_init__(self) -> None:
        for name in LISTS:  # what training would refuse is refused here
            load_datalist(self.site.data_root, self.site.datalist, name, required=False)
            if self.lists.get(name, []) is None:  # as good as missing
                del self.lists[name]
        images = {entry["image"] for name in LISTS for entry in self.lists.get(name, [])}
        self._places = {image: os.path.realpath(self.site.data_root / image) for image in images}
        self.held_out = {
            str(e["patient"]): name for name in HELD_OUT for e in self.lists.get(name, []) if "patient" in e
        }

    def take(self, case: str, label: Path, image: Path | None, origin: Mapping[str, str]) -> LabelOutcome:
        """Use one saved label; raises DataError if it cannot be used."""
        where = self._entries(os.path.realpath(image)) if image else {}
        if not where:
            return LabelOutcome(case, LEFT, f"its image is not in {self.site.datalist.name}")
        if held := [name for name in HELD_OUT if name in where]:
            return LabelOutcome(case, LEFT, f"in '{held[0]}', whose masks are never changed")
        if len(where.get(TRAINING, [])) > 1:
            raise DataError(f"'{TRAINING}' has its image {len(where[TRAINING])} times; leave one entry in the datalist")
        entry = (where.get(TRAINING) or where[UNLABELED])[0]
        patients = {str(e["patient"]) for entries in where.values() for e in entries if "patient" in e}
        if held := next((self.held_out[patient] for patient in patients if patient in self.held_out), None):
            raise DataError(f"its patient is in '{held}' and must not be trained on")
        shape, affine = read_grid(image)
        mask = read_mask(label, shape, affine)
        ml, former = volume_ml(mask, affine), entry.get("label") if TRAINING in where else None
        if former and self._same(former, mask, shape, affine):
            return LabelOutcome(case, UNCHANGED, "", ml)
        target = former if former and former.startswith(f"{CORRECTED}/") else self._free(case)
        notes = [self._change(entry, target, former, where.get(UNLABELED, []))]
        self.masks[target] = mask_bytes(mask, affine)
        self.foreground |= bool(mask.any())
        used = datetime.now(UTC).isoformat(timespec="seconds")
        self.record.append({"image": entry["image"], "label": target, "replaces": former, **origin, "used": used})
        notes += [] if mask.any() else ["no foreground: a scan without disease"]
        return LabelOutcome(case, REPLACED if former else NEW, "; ".join(filter(None, notes)), ml)

    def require_foreground(self) -> None:
        """Raise DataError if the site could not train: no training mask has a foreground voxel."""
        if self.foreground:
            return
        others = [e["label"] for e in self.lists[TRAINING] if e["label"] not in self.masks]
        if any(_has_foreground(self.site.data_root / label) for label in others):
            return
        raise DataError(
            f"{self.site.site}: none of {len(self.masks) + len(others)} training masks would have a foreground voxel: "
            "there would be nothing to learn, and the site's rounds would fail. Nothing was changed; correct a scan "
            "with disease too"
        )

    def _entries(self, file: str) -> dict[str, list[dict[str, Any]]]:
        """The lists that hold an image, with its entries."""
        found = {name: [e for e in self.lists.get(name, []) if self._places[e["image"]] == file] for name in LISTS}
        return {name: entries for name, entries in found.items() if entries}

    def _change(self, entry: dict[str, Any], target: str, former: str | None, unlabelled: list[dict[str, Any]]) -> str:
        """Give an entry its mask and its list; return what to say about it."""
        if former:
            entry["label"] = target
            return "" if former == target else f"instead of {former}, which is kept"
        more = {key: value for key, value in entry.items() if key not in ("image", "label")}
        self.lists.setdefault(TRAINING, []).append({"image": entry["image"], "label": target, **more})
        rest = [other for other in self.lists[UNLABELED] if other not in unlabelled]
        if not rest:
            return f"stays in '{UNLABELED}' too, which would be empty"
        self.lists[UNLABELED] = rest
        return ""

    def _same(self, label: str, mask: np.ndarray, shape: tuple[int, ...], affine: np.ndarray) -> bool:
        try:
            return bool(np.array_equal(read_mask(self.site.data_root / label, shape, affine), mask))
        except DataError:
            return False

    def _free(self, case: str) -> str:
        """A name that no other image's mask has; what an interrupted run left is written over."""
        used = {entry.get("label") for name in LISTS for entry in self.lists.get(name, [])} | set(self.masks)
        number, name = 1, f"{CORRECTED}/{case}.nii.gz"
        while name in used:
            number += 1
            name = f"{CORRECTED}/{case}-{number}.nii.gz"
        return name


def _has_foreground(mask: Path) -> bool:
    try:
        return bool(np.asanyarray(nib.load(mask).dataobj).any())
    except UNREADABLE:
        return False
