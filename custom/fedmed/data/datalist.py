"""Read a site's datalist: which images it has, and which of them have masks or belong to a known class."""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from fedmed.errors import DataError

log = logging.getLogger("fedmed.data")

UNLABELED = "unlabeled"
FILE_KEYS = ("image", "label")
EXAMPLE = '{"training": [{"image": "images/a.nii.gz", "label": "labels/a.nii.gz"}], "unlabeled": [{"image": "…"}]}'
_FILE_NAME = re.compile(r"[/\\]|\.[A-Za-z][A-Za-z0-9]*$")  # of a mask: has a folder or an extension


def load_datalist(
    data_root: Path | str,
    datalist: Path | str,
    key: str,
    required: bool = True,
    classes: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the cases of one list with absolute paths.

    Args:
        data_root: folder that holds every image of the site.
        datalist: MSD-style JSON file; its paths are relative to ``data_root``.
        key: ``training``, ``validation``, ``testing`` (with labels) or ``unlabeled`` (labels are ignored).
        required: whether a missing or empty list is an error; otherwise it gives ``[]``.
        classes: names of classes, where a label is such a name and no mask; ``label`` becomes its place in
            ``classes``, an int counted from 0.

    Raises:
        DataError: the folder, the file, the list or an image is missing, the JSON is malformed, an entry points
            outside ``data_root``, or a label is none of ``classes``.
    """
    root, path = Path(data_root), Path(datalist)
    if not root.is_dir():
        raise DataError(f"the data folder {root} does not exist; mount it or correct the site's data_root")
    entries = list_entries(path, key, required)
    if classes is None and key != UNLABELED and labels_are_classes(entries):
        raise DataError(
            f"{path}: the labels of '{key}' are names of classes, the first is {entries[0]['label']!r}, where masks "
            "are needed; use a bundle for classification, or list masks"
        )
    wheres = (f"{path}: entry {number} of '{key}'" for number in range(len(entries)))
    cases = [_case(root, where, key, entry, classes) for where, entry in zip(wheres, entries, strict=True)]
    if key == UNLABELED:
        cases = [_without_label(case) for case in cases]
        dropped = sum("label" in entry for entry in entries)
        if dropped:
            log.warning("%s: %d entries of '%s' carry a label; these labels are ignored", path, dropped, key)
    return cases


def case_names(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of cases: the image's file name without its extension."""
    return [Path(case["image"]).name.removesuffix(".gz").rsplit(".", 1)[0] for case in cases]


def list_entries(datalist: Path | str, key: str, required: bool = False) -> list[Any]:
    """Return one list as it stands in the datalist, its entries unchecked; ``[]`` where it is missing.

    Raises:
        DataError: no readable datalist, no list, or an empty or missing one that is required.
    """
    entries = read_datalist(Path(datalist)).get(key)
    if entries is None and not required:
        return []
    if not isinstance(entries, list) or (required and not entries):
        have = "is missing" if entries is None else "is empty" if entries == [] else "is not a list"
        raise DataError(f"{datalist}: the list '{key}' {have}. Example: {EXAMPLE}")
    return entries


def labels_are_classes(entries: Iterable[Any]) -> bool:
    """Whether the labels of entries are names of classes: there are some, and none looks like a file.

    Entries may be malformed; lists of several keys may be chained.
    """
    labels = [entry["label"] for entry in entries if isinstance(entry, Mapping) and "label" in entry]
    return bool(labels) and all(isinstance(label, str) and label and not _FILE_NAME.search(label) for label in labels)


def read_datalist(path: Path) -> Mapping[str, Any]:
    """Return a datalist's content, its lists unchecked.

    Raises:
        DataError: no such file, no readable JSON, or no named lists.
    """
    if not path.is_file():
        raise DataError(f"the datalist {path} does not exist; write one like {EXAMPLE}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable JSON file ({error}). Example: {EXAMPLE}") from error
    if not isinstance(content, Mapping):
        raise DataError(f"{path}: holds a {type(content).__name__} instead of named lists. Example: {EXAMPLE}")
    return content


def needed_files(key: str, classes: bool = False) -> tuple[str, ...]:
    """Which files an entry of a list must name; ``classes``: labels are names of classes."""
    return ("image",) if key == UNLABELED or classes else FILE_KEYS


def listed_file(root: Path, where: str, name: str, entry: Any) -> Path:
    """Absolute path of a file that an entry names.

    The check is by spelling: a link that the site itself placed inside its data folder may lead anywhere.

    Args:
        root: the site's data folder.
        where: of the entry, for errors.
        name: ``image`` or ``label``.
        entry: as it stands in the datalist.

    Raises:
        DataError: the entry is none, names no such file or one outside ``root``, or the file is not there.
    """
    if not isinstance(entry, Mapping):
        raise DataError(f'{where} is {entry!r}; it must look like {{"image": "images/a.nii.gz"}}')
    if name not in entry:
        hint = "; cases without a mask belong into 'unlabeled'" if name == "label" else ""
        raise DataError(f"{where} has no '{name}'{hint}")
    value = entry[name]
    relative = PurePosixPath(value) if isinstance(value, str) and value else None
    if relative is None or relative.is_absolute() or ".." in relative.parts or "\\" in value:
        raise DataError(f"{where}: '{name}' is {value!r}; it must be a path below the data folder {root}")
    file = root / relative
    try:
        found = file.is_file()
    except OSError as error:  # a folder that may not be read, or a name that no file system takes
        raise DataError(f"{where}: the {name} {file} cannot be reached ({error.strerror}); correct that") from error
    if not found:
        raise DataError(f"{where}: the {name} {file} does not exist; restore it or remove the entry")
    return file


def _case(root: Path, where: str, key: str, entry: Any, classes: Sequence[str] | None) -> dict[str, Any]:
    names = needed_files(key, classes is not None)
    files = {name: str(listed_file(root, where, name, entry)) for name in names}
    index = {} if classes is None or key == UNLABELED else {"label": _class_index(where, entry, classes)}
    return {**entry, **files, **index}


def _class_index(where: str, entry: Mapping[str, Any], classes: Sequence[str]) -> int:
    known = ", ".join(classes)
    if "label" not in entry:
        raise DataError(f"{where} has no 'label'; name its class ({known}), or list the image under '{UNLABELED}'")
    if entry["label"] not in classes:
        raise DataError(f"{where}: the label is {entry['label']!r}, which is no class; use one of {known}")
    return list(classes).index(entry["label"])


def _without_label(case: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name != "label"}
