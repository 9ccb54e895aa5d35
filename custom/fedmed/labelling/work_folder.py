"""The folder that a label server serves: links to the images, and a map that says which id is which image."""

import json
import os
import re
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fedmed.errors import DataError
from fedmed.files import write_atomically
from fedmed.labelling.study_images import ENDINGS, ending_of

MAP = "studies.json"
ANOTHER = "name another with --work"


class WorkFolder(BaseModel):
    """The folder that a label server serves. All but ``folder`` and ``skipped`` is kept in ``studies.json``.

    Attributes:
        folder: holds one link for each image, MONAI Label's own files, and what readers save (``labels/``).
        name: of the studies.
        studies: what tells them from others.
        images: id, as readers see it -> image file.
        gone: the same of images that were served before and are not now; their ids are never given to others,
            because labels may be stored under them.
        skipped: images that this user may not read.
    """

    model_config = ConfigDict(frozen=True)

    folder: Path
    name: str
    studies: str
    images: dict[str, Path]
    gone: dict[str, Path]
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
    if (work := _read(Path(folder).expanduser().resolve())) is None:
        raise DataError(
            f"{folder} is not a work folder ({MAP} is missing); serve the site first with scripts/label.sh SITE_YAML "
            "BUNDLE, or name the folder that it printed with --work"
        )
    return work


def known_ids(folder: Path, studies: str) -> dict[str, Path]:
    """Return the ids given by earlier calls, with their images; the folder need not exist.

    Raises:
        DataError: a folder of something else, of other studies, or one that cannot be read.
    """
    try:
        work = _read(folder)
        if work is None and folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder} is not empty and is not a work folder ({MAP} is missing); {ANOTHER}")
    except OSError as error:
        raise DataError(f"the work folder {folder} cannot be read ({error.strerror}); {ANOTHER}") from error
    if work and work.studies != studies:
        raise DataError(f"{folder} is the work folder of {work.studies.partition(chr(10))[0]}; {ANOTHER}")
    return work.all_images if work else {}


def _read(folder: Path) -> WorkFolder | None:
    path = folder / MAP
    if not path.is_file():
        return None
    try:
        return WorkFolder(folder=folder, **json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:  # a ValidationError is a ValueError
        raise DataError(f"{path} is damaged ({error}); move the folder away, with the labels in it") from error


def write_map(work: WorkFolder) -> None:
    """Remember which id is which image; raises OSError."""
    path, content = work.folder / MAP, work.model_dump_json(indent=1, exclude={"folder", "skipped"}).encode() + b"\n"
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, lambda stream: stream.write(content))


def uploaded(folder: Path) -> set[str]:
    """Ids of images that a reader uploaded: files in the folder that are not links."""
    return {plain_name(path.name) for path in folder.iterdir() if not path.is_symlink() and ending_of(path.name)}


def give_ids(paths: list[Path], known: Mapping[str, Path], taken: set[str]) -> dict[str, Path]:
    """Return id -> image: known images keep their id, others get the next free one; ``taken`` are of other images."""
    given = {path: key for key, path in known.items() if key not in taken}
    used = {key.casefold() for key in (*known, *taken)}
    for path in paths:
        if path not in given:
            name = plain_name(path.name)
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            given[path] = next(candidate for candidate in names if candidate.casefold() not in used)
            used.add(given[path].casefold())
    return {given[path]: path for path in paths}


def plain_name(name: str) -> str:
    """The file's name without its ending, in characters that neither MONAI Label nor a URL reads otherwise."""
    return re.sub(r"[^\w-]", "_", name[: len(name) - len(ending_of(name))], flags=re.ASCII) or "image"


def link_images(folder: Path, images: Mapping[str, Path]) -> None:
    """Make the links that are missing and remove those that are wrong; raises OSError."""
    wanted = {f"{key}{ENDINGS[ending_of(path.name)]}": path for key, path in images.items()}
    for path in folder.iterdir():
        if path.is_symlink() and wanted.get(path.name) != Path(os.readlink(path)):
            path.unlink()
    for name, path in wanted.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(path)
