"""A site's datalist: which images it has, how an entry looks, and what its label is."""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from fedmed.errors import DataError
from fedmed.files import read_json

UNLABELED = "unlabeled"  # the list whose labels nobody reads
FILE_KEYS = ("image", "label")  # under which a case may name a file
PATH_KEYS = (*FILE_KEYS, "video", "labels", "masks")  # what any kind of entry may name
LABEL_KEYS = ("label", "labels", "masks")  # what an entry of that list must not be read for
_SAMPLES = {  # of what an entry may name
    "image": "images/a.nii.gz",
    "label": "labels/a.nii.gz",
    "video": "videos/a.mp4",
    "labels": "labels/a.csv",
    "masks": "masks/a",
}
_THERE = {"video": Path.exists, "masks": Path.is_dir}  # others are files; a video may be a folder of frames
_FILE_NAME = re.compile(r"[/\\]|\.[A-Za-z][A-Za-z0-9]*$")  # has a folder or an extension
log = logging.getLogger("fedmed.data")
HELD_OUT = ("validation", "testing")
LABELLED = ("training", *HELD_OUT)
LABELLED_DATALIST = "datalist_labelled.json"  # beside a site's own: for experiments in which every site may have labels


@dataclass(frozen=True)
class UnlabelledEntry:
    """``{"image": file}``. What else stands there under ``label`` is listed by a check, and never read."""

    main: ClassVar[str] = "image"  # what is looked at, under which every entry names a file

    def files(self, key: str) -> tuple[str, ...]:
        """Names under which an entry of the list ``key`` must name a file."""
        return ("image",)

    def example(self) -> str:
        """A datalist of such entries, as JSON."""
        return self._example({name: _SAMPLES[name] for name in self.files("training")})

    def _example(self, entry: Mapping[str, str]) -> str:
        return json.dumps({"training": [entry], UNLABELED: [{self.main: "…"}]}, ensure_ascii=False)

    def word(self, key: str, entry: Mapping[str, Any]) -> str | None:
        """The label of an entry of the list ``key``, where it is a word and not a file."""
        label = entry.get("label")
        return label if key != UNLABELED and is_word(label) else None

    def wrong(self, key: str, where: str, entry: Mapping[str, Any]) -> str:
        """Sentence about a label that is a word and wrong here; "" for none."""
        return ""

    def read(self, root: Path, key: str, where: str, entry: Any) -> dict[str, Any]:
        """The entry of the list ``key`` with the absolute paths of its files, which lie below ``root``.

        Raises:
            DataError: it is not an entry of this form; ``where`` says which one it is.
        """
        files = {name: str(listed_file(root, where, name, entry)) for name in self.files(key)}
        return {**entry, **files}


@dataclass(frozen=True)
class MaskEntry(UnlabelledEntry):
    """``{"image": file, "label": file}``: the label is a mask on the grid of its image."""

    def files(self, key: str) -> tuple[str, ...]:
        return ("image",) if key == UNLABELED else ("image", "label")

    def word(self, key: str, entry: Mapping[str, Any]) -> str | None:
        return None

    def wrong(self, key: str, where: str, entry: Mapping[str, Any]) -> str:
        label = entry.get("label")
        if key == UNLABELED or not is_word(label):
            return ""
        text = f"{where}: the label is {label!r}, the name of a class, where the file of a mask is needed"
        return f"{text}; use a bundle for classification, or list the mask"

    def read(self, root: Path, key: str, where: str, entry: Any) -> dict[str, Any]:
        try:
            return super().read(root, key, where, entry)
        except DataError as error:  # a file may be called like a class, so only one that is not there is a mistake
            sentence = self.wrong(key, where, entry) if isinstance(entry, Mapping) else ""
            raise DataError(sentence or str(error)) from error


@dataclass(frozen=True)
class ClassEntry(UnlabelledEntry):
    """``{"image": file, "label": name}``: the label is the name of the image's class."""

    classes: tuple[str, ...] | None = None  # in the order of the network's outputs; None where no job has said them

    def example(self) -> str:
        return self._example({"image": "images/a.png", "label": (self.classes or ("normal",))[0]})

    def word(self, key: str, entry: Mapping[str, Any]) -> str | None:
        return None if key == UNLABELED else entry.get("label")

    def wrong(self, key: str, where: str, entry: Mapping[str, Any]) -> str:
        if key == UNLABELED or isinstance(entry.get("label"), str):
            return ""
        return f"{where} has no class as its 'label'; name it, or list the image under '{UNLABELED}'"

    def read(self, root: Path, key: str, where: str, entry: Any) -> dict[str, Any]:
        """As above; ``label`` becomes its place in ``classes``, an int counted from 0."""
        case = super().read(root, key, where, entry)
        if key == UNLABELED:
            return case
        classes = self.classes or ()
        known = ", ".join(classes)
        if "label" not in entry:
            raise DataError(f"{where} has no 'label'; name its class ({known}), or list the image under '{UNLABELED}'")
        if entry["label"] not in classes:
            raise DataError(f"{where}: the label is {entry['label']!r}, which is not a class; use one of {known}")
        return {**case, "label": classes.index(entry["label"])}


@dataclass(frozen=True)
class Video(UnlabelledEntry):
    """``{"video": file or folder of frames, "labels": table, "masks": folder, "patient": name}``."""

    labels: bool = True  # whether a labelled entry must name a table, see :mod:`fedmed.data.video.label_table`
    masks: bool = False  # whether it must name a folder of masks, see :mod:`fedmed.data.video.frame_masks`
    main: ClassVar[str] = "video"

    def files(self, key: str) -> tuple[str, ...]:
        wanted = {"labels": self.labels, "masks": self.masks} if key != UNLABELED else {}
        return ("video", *(name for name, needed in wanted.items() if needed))

    def word(self, key: str, entry: Mapping[str, Any]) -> str | None:
        return None

    def wrong(self, key: str, where: str, entry: Mapping[str, Any]) -> str:
        if "video" in entry or "image" not in entry:
            return ""
        return f"{where} names an 'image', and this task needs a 'video'; use a bundle for images, or list videos"


def is_word(label: Any) -> bool:
    """True where a label is spelled like the name of a class, and not like a file: no folder, no extension."""
    return isinstance(label, str) and bool(label) and not _FILE_NAME.search(label)


def names_path(root: Path, key: str, value: Any) -> bool:
    """True where an entry names by this key what is there below ``root``; an image's label may be a word instead."""
    return key in PATH_KEYS and isinstance(value, str) and _THERE.get(key, Path.is_file)(root / value)


def count_labelled(entries: Iterable[Any]) -> int:
    """Count the entries of a datalist that carry a label, of whatever kind."""
    return sum(isinstance(entry, Mapping) and any(name in entry for name in LABEL_KEYS) for entry in entries)


def listed_file(root: Path, where: str, name: str, entry: Any) -> Path:
    """Absolute path below ``root`` of what an entry names: a file, a folder as ``masks``, either as ``video``.

    The check is by spelling: a link that the site itself placed inside its data folder may lead anywhere.

    Raises:
        DataError: not an entry, or it names no such file or one outside ``root``, or the file is not there.
    """
    if not isinstance(entry, Mapping):
        example = '{"image": "images/a.nii.gz"}' if name in FILE_KEYS else '{"video": "videos/a.mp4"}'
        raise DataError(f"{where} is {entry!r}; it must look like {example}")
    if name not in entry:
        kind = "a mask" if name == "label" else name
        hint = f"; cases without {kind} belong into '{UNLABELED}'" if name in LABEL_KEYS else ""
        raise DataError(f"{where} has no '{name}'{hint}")
    value = entry[name]
    relative = PurePosixPath(value) if isinstance(value, str) and value else None
    if relative is None or relative.is_absolute() or ".." in relative.parts or "\\" in value:
        raise DataError(f"{where}: '{name}' is {value!r}; it must be a path below the data folder {root}")
    file = root / relative
    try:
        exists = _THERE.get(name, Path.is_file)(file)
    except OSError as error:  # a folder that may not be read, or a name that no file system takes
        raise DataError(f"{where}: the {name} {file} cannot be reached ({error.strerror}); correct that") from error
    if not exists:
        raise DataError(f"{where}: the {name} {file} does not exist; restore it or remove the entry")
    return file


EXAMPLE = MaskEntry().example()


def load_datalist(
    data_root: Path | str,
    datalist: Path | str,
    key: str,
    required: bool = True,
    classes: Sequence[str] | None = None,
    form: UnlabelledEntry | None = None,
) -> list[dict[str, Any]]:
    """Return the cases of one list with absolute paths.

    Args:
        data_root: folder that holds every image of the site.
        datalist: MSD-style JSON file; its paths are relative to ``data_root``.
        key: ``training``, ``validation``, ``testing`` (with labels) or ``unlabeled`` (labels are ignored).
        required: whether a missing or empty list is an error; otherwise it gives ``[]``.
        classes: names of classes, where a label is such a name and no mask; ``label`` becomes its place in
            ``classes``, an int counted from 0.
        form: how an entry looks, where it is neither of these: :class:`fedmed.data.datalist.Video`.

    Raises:
        DataError: the folder, the file, the list or an image is missing, the JSON is malformed, an entry points
            outside ``data_root``, or a label is not one of ``classes``.
    """
    root, path = Path(data_root), Path(datalist)
    if not root.is_dir():
        raise DataError(f"the data folder {root} does not exist; mount it or correct the site's data_root")
    form = form or (MaskEntry() if classes is None else ClassEntry(tuple(classes)))
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


def check_class_names(datalist: Path, form: UnlabelledEntry, classes: Sequence[str]) -> None:
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
    """Return one list of a datalist, its entries unchecked; ``[]`` where it is missing.

    DataError, which shows the ``example``, for no readable datalist, no list, or a required one without entries.
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
