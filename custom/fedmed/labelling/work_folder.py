"""The folder that a label server serves: links to the images, and a map that says which id is which image."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedmed.errors import DataError
from fedmed.files import write_atomically

MAP = "studies.json"
# As the link is spelled: MONAI Label knows some endings only, in small letters.
ENDINGS = {".nii.gz": ".nii.gz", ".nii": ".nii", ".png": ".png", ".jpg": ".jpg", ".jpeg": ".jpg"}
DICOM = {".dcm": ".dcm", ".dicom": ".dcm"}  # images of their own where they are radiographs
ENDINGS |= DICOM
ANOTHER = "name another with --work"


@dataclass(frozen=True)
class WorkFolder:
    """The folder that a label server serves.

    Attributes:
        folder: holds one link for each image, MONAI Label's own files, and what readers save (``labels/``).
        images: id, as readers see it -> image file.
        gone: the same of images that were served before and are not now; their ids are never given to others,
            because labels may be stored under them.
        skipped: images that this user may not read.
    """

    folder: Path
    images: Mapping[str, Path]
    gone: Mapping[str, Path]
    skipped: tuple[Path, ...] = ()

    @property
    def all_images(self) -> dict[str, Path]:
        """Every id that was ever given."""
        return {**self.gone, **self.images}


def read_work(folder: Path) -> WorkFolder:
    """Return what an earlier :func:`prepare_work` made.

    Raises:
        DataError: the folder is not one.
    """
    content = _read_map(Path(folder).expanduser().resolve())
    if content is None:
        raise DataError(
            f"{folder} is no work folder ({MAP} is missing); serve the site first with scripts/label.sh SITE_YAML "
            "BUNDLE, or name the folder that it printed with --work"
        )
    images, gone = ({key: Path(path) for key, path in content[part].items()} for part in ("images", "gone"))
    return WorkFolder(Path(folder).expanduser().resolve(), images, gone)


def known_ids(folder: Path, identity: str) -> dict[str, Path]:
    """Return the ids given by earlier calls, with their images.

    Args:
        folder: the work folder, which need not exist.
        identity: what tells these studies from others.

    Raises:
        DataError: a folder of something else, of other studies, or one that cannot be read.
    """
    try:
        content = _read_map(folder)
        if content is None and folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder} is not empty and is no work folder ({MAP} is missing); {ANOTHER}")
    except OSError as error:
        raise DataError(f"the work folder {folder} cannot be read ({error.strerror}); {ANOTHER}") from error
    if content is None:
        return {}
    if content["studies"] != identity:
        served = content["studies"].splitlines()[0]
        raise DataError(f"{folder} is the work folder of {served}; {ANOTHER}")
    return {key: Path(path) for part in ("gone", "images") for key, path in content[part].items()}


def _read_map(folder: Path) -> dict | None:
    path = folder / MAP
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content["studies"], str) and all(isinstance(content[p], dict) for p in ("images", "gone")):
            return content
        raise TypeError("entries of the wrong kind")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); move the folder away, with the labels in it") from error


def write_map(folder: Path, name: str, identity: str, images: Mapping[str, Path], gone: Mapping[str, Path]) -> None:
    """Remember which id is which image; raises OSError."""
    content = {"name": name, "studies": identity}
    content |= {"images": {k: str(v) for k, v in images.items()}, "gone": {k: str(v) for k, v in gone.items()}}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if not (folder / MAP).is_file() or (folder / MAP).read_text(encoding="utf-8") != text:
        write_atomically(folder / MAP, lambda stream: stream.write(text.encode()))


def uploaded(folder: Path) -> set[str]:
    """Ids of images that a reader uploaded: files in the folder that are no links."""
    return {_stem(path.name) for path in folder.iterdir() if not path.is_symlink() and ending_of(path.name)}


def give_ids(paths: list[Path], known: Mapping[str, Path], taken: set[str]) -> dict[str, Path]:
    """Return id -> image: known images keep their id, others get the next free one.

    Args:
        paths: the images.
        known: ids of earlier calls.
        taken: ids of other images in the folder.
    """
    given = {path: key for key, path in known.items() if key not in taken}
    used = {key.casefold() for key in (*known, *taken)}
    ids: dict[str, Path] = {}
    for path in paths:
        if path not in given:
            name = candidate = _stem(path.name)
            number = 1
            while candidate.casefold() in used:
                number += 1
                candidate = f"{name}-{number}"
            used.add(candidate.casefold())
            given[path] = candidate
        ids[given[path]] = path
    return ids


def _stem(name: str) -> str:
    """The file's name without its ending, in characters that neither MONAI Label nor a URL reads otherwise."""
    return re.sub(r"[^\w-]", "_", name[: len(name) - len(ending_of(name) or "")], flags=re.ASCII) or "image"


def link_images(folder: Path, images: Mapping[str, Path]) -> None:
    """Make the links that are missing and remove those that are wrong; raises OSError."""
    wanted = {f"{key}{ENDINGS[ending_of(path.name)]}": path for key, path in images.items()}
    for path in folder.iterdir():
        if path.is_symlink() and wanted.get(path.name) != Path(os.readlink(path)):
            path.unlink()
    for name, path in wanted.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(path)


def ending_of(name: str) -> str | None:
    """The ending in small letters if the file's name is that of an image, else None."""
    return next((ending for ending in ENDINGS if name.lower().endswith(ending)), None)
