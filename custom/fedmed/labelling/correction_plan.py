"""The datalist of a site as it will be when readers' masks have become training data."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedmed.data.datalist import HELD_OUT, UNLABELED, UnlabelledEntry, load_datalist
from fedmed.errors import DataError
from fedmed.labelling.views import CORRECTED, LISTS
from fedmed.settings.site import SiteConfig

TRAINING = "training"
NEW, REPLACED, UNCHANGED, LEFT, REFUSED = "new", "replaced", "unchanged", "left alone", "refused"


@dataclass(frozen=True)
class LabelOutcome:
    """Outcome of one saved label.

    Attributes:
        case: id of the image.
        done: ``new`` (now a training case), ``replaced``, ``unchanged``, ``left alone`` or ``refused``.
        note: the reason, or what else is worth knowing.
        foreground: how much of it there is, in the plan's unit; None where the label was not read.
    """

    case: str
    done: str
    note: str = ""
    foreground: float | None = None


@dataclass(frozen=True)
class DrawnMask:
    """A reader's mask that fits its image.

    Attributes:
        values: on the grid of the image.
        image: what it is of.
        foreground: how much of it is foreground, in the plan's unit.
        file: what it is called among the masks of a video; empty for a scan, which has one.
    """

    values: np.ndarray
    image: Path
    foreground: float
    file: str = ""


@dataclass
class CorrectionPlan(ABC):
    """The datalist as it will be, and the masks that it needs.

    Attributes:
        lists: content of the datalist, changed as labels are taken.
        masks: path relative to the data folder -> content of the file; compressed, for they are all kept at once.
        record: an entry for each label that is taken.
        foreground: whether any of them has foreground.
        form: how an entry looks.
        key: under which an entry names its masks.
        unit: of the foreground.
        healthy: what a mask without foreground says.
    """

    site: SiteConfig
    lists: dict[str, Any]
    masks: dict[str, bytes] = field(default_factory=dict)
    record: list[dict[str, Any]] = field(default_factory=list)
    foreground: bool = False

    form: ClassVar[UnlabelledEntry]
    key: ClassVar[str]
    unit: ClassVar[str]
    healthy: ClassVar[str]

    def __post_init__(self) -> None:
        for name in LISTS:  # what training would refuse is refused here
            load_datalist(self.site.data_root, self.site.datalist, name, required=False, form=self.form)
            if self.lists.get(name, []) is None:  # as good as missing
                del self.lists[name]
        listed = {entry[self.form.main] for name in LISTS for entry in self.lists.get(name, [])}
        self._places = {name: os.path.realpath(self.site.data_root / name) for name in listed}
        held = [(name, entry) for name in HELD_OUT for entry in self.lists.get(name, [])]
        self._held_out = {str(entry["patient"]): name for name, entry in held if "patient" in entry}

    def take(self, case: str, label: Path, image: Path | None, origin: Mapping[str, str]) -> LabelOutcome:
        """Use one saved label; raises DataError if it cannot be used."""
        where = self._entries(image)
        if image is None or not where:
            return LabelOutcome(case, LEFT, f"its {self.form.main} is not in {self.site.datalist.name}")
        if held := next((name for name in HELD_OUT if name in where), None):
            return LabelOutcome(case, LEFT, f"in '{held}', whose masks are never changed")
        entry = self._entry(where)
        mask, former = self.read(label, image), entry.get(self.key) if TRAINING in where else None
        if former and self.is_same(former, mask):
            return LabelOutcome(case, UNCHANGED, "", mask.foreground)
        target = former if former and former.startswith(f"{CORRECTED}/") else self._free(self.name_of(case, entry))
        done, notes = self.put(target, former, mask), [self._change(entry, target, former, where.get(UNLABELED, []))]
        self.foreground |= bool(mask.values.any())
        used = datetime.now(UTC).isoformat(timespec="seconds")
        frame = {"frame": mask.file} if mask.file else {}
        more = {self.key: target, "replaces": former, **frame, **origin, "used": used}
        self.record.append({self.form.main: entry[self.form.main], **more})
        notes += [] if mask.values.any() else [f"no foreground: {self.healthy}"]
        return LabelOutcome(case, done, "; ".join(filter(None, notes)), mask.foreground)

    @abstractmethod
    def read(self, label: Path, image: Path) -> DrawnMask:
        """Read a saved label; raises DataError if it does not fit its image."""

    @abstractmethod
    def is_same(self, former: str, mask: DrawnMask) -> bool:
        """True where the masks that an entry names hold just this one."""

    @abstractmethod
    def put(self, target: str, former: str | None, mask: DrawnMask) -> str:
        """Plan the files of a mask: ``new`` where the image had none, or ``replaced``."""

    @abstractmethod
    def name_of(self, case: str, entry: Mapping[str, Any]) -> str:
        """Name of what an entry's masks are written to, below the folder of corrected ones."""

    @abstractmethod
    def kept(self) -> Iterator[Path]:
        """Files of the training masks that stay as they are."""

    @abstractmethod
    def has_foreground(self, file: Path) -> bool:
        """True where a mask has foreground; not if it cannot be read."""

    def place_of(self, image: Path) -> str:
        """Path, without links, of what an entry names, for an image of it."""
        return os.path.realpath(image)

    def require_foreground(self) -> None:
        """Raise DataError if the site could not train: no training mask has foreground."""
        kept = list(self.kept())
        if self.foreground or any(map(self.has_foreground, kept)):
            return
        raise DataError(
            f"{self.site.site}: none of {len(self.masks) + len(kept)} training masks would have any foreground: "
            "there would be nothing to learn, and the site's rounds would fail. Nothing was changed; correct "
            f"{self.form.main}s that show something too"
        )

    def _entries(self, image: Path | None) -> dict[str, list[dict[str, Any]]]:
        """The lists that hold an image, with its entries."""
        wanted = self.place_of(image) if image else None
        at = {name for name, place in self._places.items() if place == wanted}
        lists = {name: [e for e in self.lists.get(name, []) if e[self.form.main] in at] for name in LISTS}
        return {name: entries for name, entries in lists.items() if entries}

    def _entry(self, where: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
        """The one entry of an image that gets a mask."""
        if (times := len(where.get(TRAINING, []))) > 1:
            raise DataError(f"'{TRAINING}' has its {self.form.main} {times} times; leave one entry in the datalist")
        patients = {str(entry["patient"]) for entry in chain(*where.values()) if "patient" in entry}
        if held := sorted(patients & self._held_out.keys()):
            raise DataError(f"its patient is in '{self._held_out[held[0]]}' and must not be trained on")
        return (where.get(TRAINING) or where[UNLABELED])[0]

    def _change(self, entry: dict[str, Any], target: str, former: str | None, unlabelled: list[dict[str, Any]]) -> str:
        """Give an entry its mask and its list; return what to say about it."""
        if former:
            entry[self.key] = target
            return "" if former == target else f"instead of {former}, which is kept"
        main = self.form.main
        more = {key: value for key, value in entry.items() if key not in (main, self.key)}
        self.lists.setdefault(TRAINING, []).append({main: entry[main], self.key: target, **more})
        rest = [other for other in self.lists[UNLABELED] if other not in unlabelled]
        if not rest:
            return f"stays in '{UNLABELED}' too, which would be empty"
        self.lists[UNLABELED] = rest
        return ""

    def _free(self, name: str) -> str:
        """A name that nothing else's masks have; what an interrupted run left is written over."""
        used = {entry.get(self.key) for listed in LISTS for entry in self.lists.get(listed, [])}
        stem, dot, ending = name.partition(".")
        names = chain([name], (f"{stem}-{number}{dot}{ending}" for number in count(2)))
        return next(path for one in names if (path := f"{CORRECTED}/{one}") not in used)
