"""Read a site's datalist: which images it has, and which of them have masks or belong to a known class."""

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedmed.data.entry_forms import LABEL_KEYS, UNLABELED, ImageAlone, ImageWithMask, count_labelled, form_of
from fedmed.errors import DataError
from fedmed.files import read_json

log = logging.getLogger("fedmed.data")

HELD_OUT = ("validation", "testing")
LABELLED = ("training", *HELD_OUT)
LABELLED_DATALIST = "datalist_labelled.json"  # beside a site's own: for experiments in which every site may have labels
EXAMPLE = ImageWithMask().example()


def load_datalist(
    data_root: Path | str,
    datalist: Path | str,
    key: str,
    required: bool = True,
    classes: Sequence[str] | None = None,
    form: ImageAlone | None = None,
) -> list[dict[str, Any]]:
    """Return the cases of one list with absolute paths.

    Args:
        data_root: folder that holds every image of the site.
        datalist: MSD-style JSON file; its paths are relative to ``data_root``.
        key: ``training``, ``validation``, ``testing`` (with labels) or ``unlabeled`` (labels are ignored).
        required: whether a missing or empty list is an error; otherwise it gives ``[]``.
        classes: names of classes, where a label is such a name and no mask; ``label`` becomes its place in
            ``classes``, an int counted from 0.
        form: how an entry looks, where it is neither of these: :class:`fedmed.data.entry_forms.Video`.

    Raises:
        DataError: the folder, the file, the list or an image is missing, the JSON is malformed, an entry points
            outside ``data_root``, or a label is not one of ``classes``.
    """
    root, path = Path(data_root), Path(datalist)
    if not root.is_dir():
        raise DataError(f"the data folder {root} does not exist; mount it or correct the site's data_root")
    form = form or form_of(classes)
    entries = list_entries(path, key, required, form.example())
    cases = [form.read(root, key, f"{path}: entry {n} of '{key}'", entry) for n, entry in enumerate(entries)]
    if key == UNLABELED:
        cases = [{name: value for name, value in case.items() if name not in LABEL_KEYS} for case in cases]
        if dropped := count_labelled(entries):
            log.warning("%s: %d entries of '%s' carry a label; these labels are ignored", path, dropped, key)
    return cases


def case_names(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of cases: the file name of the image or video without its extension."""
    names = [Path(case.get("video") or case["image"]).name for case in cases]
    return [(name[:-3] if name.lower().endswith(".gz") else name).rsplit(".", 1)[0] for name in names]


def check_words(datalist: Path, form: ImageAlone, classes: Sequence[str]) -> None:
    """Refuse labels that are none of a study's classes, in whatever list: before the first round, not in the last.

    Raises:
        DataError: such a label, or no readable datalist.
    """
    content = read_datalist(datalist)
    for key in LABELLED:
        for n, entry in enumerate(entries_of(content, datalist, key)):
            word = form.word(key, entry) if isinstance(entry, Mapping) else None
            if isinstance(word, str) and word not in classes:
                known = ", ".join(classes)
                raise DataError(
                    f"{datalist}: entry {n} of '{key}': the label is '{word}', which is not a class of the study; use "
                    f"one of {known}, or ask the study lead to add it to the study's 'classes'"
                )


def list_entries(datalist: Path | str, key: str, required: bool = False, example: str = EXAMPLE) -> list[Any]:
    """Return one list as it stands in the datalist, its entries unchecked; ``[]`` where it is missing.

    DataError, which shows the ``example``, for no readable datalist, no list, or an empty or missing one that is
    required.
    """
    return entries_of(read_datalist(Path(datalist), example), datalist, key, required, example)


def entries_of(
    content: Mapping[str, Any], datalist: Path | str, key: str, required: bool = False, example: str = EXAMPLE
) -> list[Any]:
    """The same of a datalist that has been read."""
    entries = content.get(key)
    if entries is None and not required:
        return []
    if not isinstance(entries, list) or (required and not entries):
        have = "is missing" if entries is None else "is empty" if entries == [] else "is not a list"
        raise DataError(f"{datalist}: the list '{key}' {have}. Example: {example}")
    return entries


def read_datalist(path: Path, example: str = EXAMPLE) -> Mapping[str, Any]:
    """Return a datalist's content, its lists unchecked; DataError for no such file, or no JSON of named lists.

    A task asks for its lists many times, and the file is read once, until it changes: do not change an entry.
    """
    if not path.is_file():
        raise DataError(f"the datalist {path} does not exist; write one like {example}")
    status = path.stat()
    try:
        content = _content(path.absolute(), (status.st_ino, status.st_size, status.st_mtime_ns))
    except DataError as error:
        raise DataError(f"{error}; write named lists like {example}") from error
    return {key: [*value] if isinstance(value, list) else value for key, value in content.items()}


@lru_cache(maxsize=8)
def _content(path: Path, version: tuple[int, ...]) -> Mapping[str, Any]:
    return read_json(path, DataError)
