"""The datalist of a site as it will be when readers' masks have become training data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.data.datalist import load_datalist
from fedmed.data.entry_forms import UNLABELED
from fedmed.errors import DataError
from fedmed.labelling.masks import has_foreground, mask_bytes, read_grid, read_mask, volume_ml
from fedmed.labelling.study_images import CORRECTED, LISTS
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
        listed = [(name, entry) for name in HELD_OUT for entry in self.lists.get(name, [])]
        self._held_out = {str(entry["patient"]): name for name, entry in listed if "patient" in entry}

    def take(self, case: str, label: Path, image: Path | None, origin: Mapping[str, str]) -> LabelOutcome:
        """Use one saved label; raises DataError if it cannot be used."""
        where = self._entries(image)
        if image is None or not where:
            return LabelOutcome(case, LEFT, f"its image is not in {self.site.datalist.name}")
        if held := next((name for name in HELD_OUT if name in where), None):
            return LabelOutcome(case, LEFT, f"in '{held}', whose masks are never changed")
        entry = self._entry(where)
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
        others = [e["label"] for e in self.lists[TRAINING] if e["label"] not in self.masks]
        if self.foreground or any(has_foreground(self.site.data_root / label) for label in others):
            return
        raise DataError(
            f"{self.site.site}: none of {len(self.masks) + len(others)} training masks would have a foreground voxel: "
            "there would be nothing to learn, and the site's rounds would fail. Nothing was changed; correct a scan "
            "with disease too"
        )

    def _entries(self, image: Path | None) -> dict[str, list[dict[str, Any]]]:
        """The lists that hold an image, with its entries."""
        file = os.path.realpath(image) if image else None
        found = {name: [e for e in self.lists.get(name, []) if self._places[e["image"]] == file] for name in LISTS}
        return {name: entries for name, entries in found.items() if entries}

    def _entry(self, where: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
        """The one entry of an image that gets a mask."""
        if len(where.get(TRAINING, [])) > 1:
            raise DataError(f"'{TRAINING}' has its image {len(where[TRAINING])} times; leave one entry in the datalist")
        patients = {str(entry["patient"]) for entry in chain(*where.values()) if "patient" in entry}
        if held := sorted(patients & self._held_out.keys()):
            raise DataError(f"its patient is in '{self._held_out[held[0]]}' and must not be trained on")
        return (where.get(TRAINING) or where[UNLABELED])[0]

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
        names = chain([case], (f"{case}-{number}" for number in count(2)))
        return next(path for name in names if (path := f"{CORRECTED}/{name}.nii.gz") not in used)
