"""A folder of links for the label server, which alone holds it: nothing is ever written beside the images."""

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fedmed.errors import DataError
from fedmed.files import fedmed_home
from fedmed.labelling.study_images import folder_images, site_images
from fedmed.labelling.work_folder import ANOTHER, WorkFolder, give_ids, known_ids, link_images, uploaded, write_map
from fedmed.settings.site import SiteConfig, load_file

SITE_FILE = (".yaml", ".yml")
LOCK = ".held"


def read_site(path: Path) -> SiteConfig:
    """Read a site's YAML by its path. Device and AMP are left out: labels need neither.

    Raises:
        SiteConfigError: missing or malformed file, unknown key or value.
    """
    return load_file(path, device="cpu", amp=False)


def work_folder(studies: Path) -> Path:
    """Where the work on a folder or on a site's YAML lies by default: ``$FEDMED_HOME/label/<name>-<hash>``.

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
    found = site_images(site, everything) if site else folder_images(Path(studies).expanduser().resolve(), pictures)
    readable = [path for path in found if os.access(path, os.R_OK)]
    if not readable:
        raise DataError(f"{studies}: none of {len(found)} images may be read by this user; allow reading them")
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
        skipped = tuple(path for path in found if path not in readable)
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
    """Whether a process has locked a folder, which need not exist."""
    try:
        with (folder / LOCK).open("r+") as file:
            return not _lock(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return False


def in_use_message(folder: Path) -> str:
    """What to tell a user about a folder that is locked."""
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
