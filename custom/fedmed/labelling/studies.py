"""Studies of a label server's folder, and where it keeps its work."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain, count
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fedmed.errors import DataError
from fedmed.files import fedmed_home, write_atomically
from fedmed.labelling.views import ENDINGS, ending_of, folder_images, site_images
from fedmed.settings.site import SiteConfig, load_file

MAP = "studies.json"
ANOTHER = "name another with --work"
SITE_FILE = (".yaml", ".yml")
LOCK = ".held"


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
    """Return what an earlier :func:`prepare_work` made; DataError: the folder is not one."""
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


def read_site(path: Path) -> SiteConfig:
    """Read a site's YAML by its path. Device and AMP are left out: labels need neither.

    Raises:
        SiteConfigError: missing or malformed file, unknown key or value.
    """
    return load_file(path, device="cpu", amp=False)


def work_folder(studies: Path) -> Path:
    """Default folder for the work on a folder or on a site's YAML: ``$FEDMED_HOME/label/<name>-<hash>``.

    That of a site depends on its name and data, not on where its YAML lies.
    """
    name, identity, _ = _identify(Path(studies))
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "studies"
    return fedmed_home() / "label" / f"{plain}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def prepare_work(
    studies: Path, work: Path | None = None, *, everything: bool = False, pictures: bool = False
) -> WorkFolder:
    """Make or update the folder of links for one label server.

    Args:
        studies: folder with images at any depth (NIfTI, PNG, JPEG; ``labels`` folders and hidden files are passed
            over), or a site's YAML: then the images of its ``unlabeled`` list and those that came from there by
            corrections.
        work: the folder; default :func:`work_folder`. Mode 0700: its labels are patient data.
        everything: of a site, the images of all lists.
        pictures: of a folder, also its DICOM files, each an image: radiographs, no slices of CT.

    Returns:
        The folder and its images. An id is the file's name without extension, with other characters than letters,
        digits, ``_`` and ``-`` as ``_``; equal names are numbered. It stays the same when images come and go.

    Raises:
        DataError: nothing to serve, a folder that cannot be listed or written, or one of other images or in use.
        SiteConfigError: the site's YAML is wrong.
    """
    name, identity, site = _identify(Path(studies))
    files = site_images(site, everything) if site else folder_images(Path(studies).expanduser().resolve(), pictures)
    readable = [path for path in files if os.access(path, os.R_OK)]
    if not readable:
        raise DataError(f"{studies}: none of {len(files)} images may be read by this user; allow reading them")
    folder = Path(work).expanduser().resolve() if work else work_folder(studies)
    _check_place(folder, site.data_root if site else Path(identity))
    if in_use(folder):  # that server would lose the images that are not to be served here
        raise DataError(in_use_message(folder))
    known = known_ids(folder, identity)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        images = give_ids(readable, known, uploaded(folder))
        gone = {key: path for key, path in known.items() if key not in images}
        skipped = tuple(path for path in files if path not in readable)
        made = WorkFolder(folder=folder, name=name, studies=identity, images=images, gone=gone, skipped=skipped)
        write_map(made)  # before the links: an id once given is never given again
        link_images(folder, images)
    except OSError as error:
        raise DataError(
            f"the work folder {folder} cannot be written ({error.strerror or error}); free some space or {ANOTHER}"
        ) from error
    return made


def _identify(studies: Path) -> tuple[str, str, SiteConfig | None]:
    """Name of the studies, text that tells them from others, and the site if they are one."""
    studies = studies.expanduser().absolute()
    if studies.suffix.lower() in SITE_FILE and not studies.is_dir():
        if not studies.is_file():
            raise DataError(f"the site's YAML {studies} does not exist; correct the path")
        site = read_site(studies)
        return site.site, f"{site.data_root}\n{site.datalist}", site
    if not studies.is_dir():
        what = "is neither a folder nor a site's YAML" if studies.exists() else "does not exist"
        raise DataError(f"the studies {studies}: {what}; give a folder of images, a site's YAML or a DICOMweb URL")
    return studies.resolve().name or "studies", str(studies.resolve()), None


def _check_place(folder: Path, source: Path) -> None:
    """The images' own folder is never written to."""
    source = source.resolve()
    if folder == source or folder.is_relative_to(source):
        raise DataError(f"the work folder {folder} lies inside the images' folder {source}; {ANOTHER}")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"the work folder {folder} is a file; {ANOTHER}")


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock an existing folder while the block runs; however the process ends, the lock ends with it.

    Raises:
        DataError: another process has locked it.
        OSError: the folder cannot be written.
    """
    with os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)) as file:
        if not _lock(file.fileno()):
            raise DataError(in_use_message(folder))
        yield


def in_use(folder: Path) -> bool:
    """True where a process has locked a folder, which need not exist."""
    try:
        with (folder / LOCK).open("r+") as file:
            return not _lock(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return False


def in_use_message(folder: Path) -> str:
    """Message for a user about a folder that is locked."""
    return (
        f"another label server serves {folder}; end that one first (one server can serve several bundles), or name "
        "another folder with --work"
    )


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network drives know no locks; then nothing tells two servers apart
        return True
    return True
