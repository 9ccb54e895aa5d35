"""When two ids mean the same patient, and whether a datalist trains on and scores with one."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from fedmed.data.datalist import HELD_OUT, LABELLED, entries_of, read_datalist
from fedmed.data.entry_forms import UNLABELED
from fedmed.errors import DataError

BLOCKS_OF = "blocks_of"  # of an entry: blocks of one recording are in several lists on purpose
IN_TWO_LISTS = "a score would be too good: keep one list, or write another id if these are two patients"


def stripped(patient: str) -> str:
    """An id without the blanks at either end, which mean nothing in DICOM and are typing errors in a table."""
    return patient.strip(" \t\r\n\0")


def folded(patient: str) -> str:
    """What spellings of one id have in common: no blanks, small letters, numbers without leading zeros."""
    text = "".join(stripped(unicodedata.normalize("NFKC", patient)).casefold().split())
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def owner(entry: object) -> str | None:
    """Whose an entry of a datalist is, as :func:`folded`; None where it does not say it, or need not."""
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
