"""From which side a radiograph was taken and of what, and which ones a site wants."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedmed.errors import DataError

CHEST = ("CHEST", "THORAX", "TORAX", "LUNG", "RIB")
FRONT = {"PA", "AP", "FRONTAL", "POSTEROANTERIOR", "ANTEROPOSTERIOR", "POSTERO", "ANTERO", "DORSOVENTRAL"}
SIDE = ("L", "R", "LL", "RL", "LLD", "RLD", "LLO", "RLO", "LPO", "RPO", "LAO", "RAO", "LAT")  # lateral and oblique
FROM_SIDE = ("LATERAL", "OBLIQ", "SEITLICH", "PROFIL", "SCHRÄG")  # parts of words
LYING = ("DECUB",)  # on one side: frontal in a way, and no picture to learn from with the others
ANY, UNKNOWN = "ANY", "UNKNOWN"  # of --view and --body-part


def view_of(header: Any) -> str:
    """View of a radiograph by its DICOM header, in capitals; "" where it says none.

    ViewPosition counts first, then the meaning of ViewCodeSequence, then PatientOrientation: rows that run to the
    front or the back of the patient show him from the side.
    """
    view = str(header.get("ViewPosition") or "").strip().upper()
    for code in header.get("ViewCodeSequence") or ():
        view = view or str(code.get("CodeMeaning") or "").strip().upper()
    rows = str(next(iter(header.get("PatientOrientation") or ()), ""))
    view = view or ("LATERAL" if rows.startswith(("A", "P")) else "")
    return {"POSTERO-ANTERIOR": "PA", "ANTERO-POSTERIOR": "AP"}.get(view, view)


def count_views(views: Iterable[str]) -> str:
    """``PA 12, AP 3, unknown 1``, the commonest first; one dash where no image says its view."""
    counts = Counter(view.upper() for view in views)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], not item[0], item[0]))
    return ", ".join(f"{view or UNKNOWN.lower()} {count}" for view, count in ordered) if any(counts) else "–"


@dataclass(frozen=True)
class WantedViews:
    """Views and body parts to take, in capitals; empty: chests that were not taken from the side.

    ``UNKNOWN`` among them stands for images that do not say it, ``ANY`` takes all. By default what is not said passes.
    """

    views: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def fault(self, view: str, part: str) -> str:
        """Reason to refuse an image; "" for one that is wanted."""
        view, part = view.upper() or UNKNOWN, part.upper() or UNKNOWN
        if self.views and not {view, ANY} & set(self.views):
            return f"its view is {view}, not {' or '.join(self.views)}"
        if not self.views and view != UNKNOWN and (fault := _not_frontal(view)):
            return fault
        if not any(word in part for word in self.parts or (*CHEST, UNKNOWN)) and ANY not in self.parts:
            return f"its body part is {part}, not {' or '.join(self.parts) or 'the chest'}"
        return ""


def _not_frontal(view: str) -> str:
    words = set(re.findall(r"[^\W\d_]+", view))
    if words & set(SIDE) or any(part in word for word in words for part in FROM_SIDE):
        return f"its view is {view}, from the side"
    if not words & FRONT or any(part in word for word in words for part in LYING):
        return f"its view is {view}, which is not known to be frontal"
    return ""


TAKEN = WantedViews()


def parse_wanted(views: str | None, parts: str | None) -> WantedViews:
    """Words between commas each; DataError for an empty one."""
    return WantedViews(_words("--view", views), _words("--body-part", parts))


def _words(option: str, text: str | None) -> tuple[str, ...]:
    words = tuple(word.strip().upper() for word in text.split(",")) if text is not None else ()
    if not all(words):
        raise DataError(f"{option} '{text}' must be words between commas, such as PA,AP")
    return words
