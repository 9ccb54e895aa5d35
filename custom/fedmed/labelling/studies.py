"""A folder of links for the label server, so that nothing is ever written beside the images themselves."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmed.data.datalist import list_entries, load_datalist
from fedmed.data.entry_forms import UNLABELED, listed_file
from fedmed.errors import DataError
from fedmed.files import fedmed_home
from fedmed.labelling.held import in_use, is_held
from fedmed.labelling.work_folder import (
    ANOTHER,
    DICOM,
    WorkFolder,
    ending_of,
    give_ids,
    known_ids,
    link_images,
    uploaded,
    write_map,
)
from fedmed.settings.site import SiteConfig, load_file

CORRECTED = "corrected_labels"  # folder below data_root; see fedmed.labelling.corrections
LISTS = ("training", "validation", "testing", UNLABELED)
SKIPPED = {"labels", CORRECTED}
SITE_FILE = (".yaml", ".yml")


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
        digits, ``_`` and ``-`` as ``_``; equal names in different folders are numbered. It stays the same when images
        come and go.

    Raises:
        DataError: nothing to serve, a folder that cannot be listed or written, or a work folder of other images or
            of a server that runs.
        SiteConfigError: the site's YAML is wrong.
    """
    name, identity, site = _identify(Path(studies))
    found = _site_images(site, everything) if site else _folder_images(Path(studies).expanduser().resolve(), pictures)
    readable = [path for path in found if os.access(path, os.R_OK)]
    if not readable:
        raise DataError(f"{studies}: none of {len(found)} images may be read by this user; allow reading them")
    folder = Path(work).expanduser().resolve() if work else work_folder(studies)
    _check_place(folder, site.data_root if site else Path(identity))
    if is_held(folder):  # that server would lose the images that are not to be served here
        raise DataError(in_use(folder))
    known = known_ids(folder, identity)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        images = give_ids(readable, known, uploaded(folder))
        gone = {key: path for key, path in known.items() if key not in images}
        write_map(folder, name, identity, images, gone)  # first: an id once given is never given again
        link_images(folder, images)
    except OSError as error:
        raise DataError(
            f"the work folder {folder} cannot be written ({error.strerror or error}); free some space or {ANOTHER}"
        ) from error
    return WorkFolder(folder, images, gone, tuple(path for path in found if path not in readable))


def _identify(studies: Path) -> tuple[str, str, SiteConfig | None]:
    """Name of the studies, text that tells them from others, and the site if they are one."""
    studies = studies.expanduser().absolute()
    if studies.suffix.lower() in SITE_FILE and not studies.is_dir():
        if not studies.is_file():
            raise DataError(f"the site's YAML {studies} does not exist; correct the path")
        site = read_site(studies)
        return site.site, f"{site.data_root}\n{site.datalist}", site
    if not studies.is_dir():
        what = "is no folder and no site's YAML" if studies.exists() else "does not exist"
        raise DataError(f"the studies {studies}: {what}; give a folder of images, a site's YAML or a DICOMweb URL")
    return studies.resolve().name or "studies", str(studies.resolve()), None


def _site_images(site: SiteConfig, everything: bool) -> list[Path]:
    """Images of a site, each once, as the datalist spells them."""
    cases = load_datalist(site.data_root, site.datalist, UNLABELED, required=False)
    for name in LISTS[:-1]:
        for number, entry in enumerate(list_entries(site.datalist, name)):
            if everything or _corrected(entry):
                where = f"{site.datalist}: entry {number} of '{name}'"
                cases.append({"image": listed_file(site.data_root, where, "image", entry)})
    if not cases:
        hint = "" if everything else f" has no '{UNLABELED}' images; --all serves those of the other lists too"
        raise DataError(f"{site.datalist}{hint or ' lists no image'}")
    return list(dict.fromkeys(Path(case["image"]) for case in cases))


def _corrected(entry: Any) -> bool:
    """Whether the label of an entry is a mask that a reader drew in the label server."""
    label = entry.get("label") if isinstance(entry, Mapping) else None
    return isinstance(label, str) and Path(label).is_relative_to(CORRECTED)


def _folder_images(root: Path, pictures: bool) -> list[Path]:
    images = sorted(_walk(root, pictures))
    if not images:
        endings = ".nii, .nii.gz, .png, .jpg" + (", .dcm" if pictures else "")
        hint = "" if pictures else "turn a folder of series into a site with scripts/prepare_ct.py, or "
        raise DataError(
            f"{root} holds no image ({endings}) at any depth. DICOM: {hint}give the URL of a DICOMweb server"
        )
    return images


def _walk(root: Path, pictures: bool) -> Iterator[Path]:
    """Images below a folder, each once; folders may be links, also to each other."""
    seen = set()

    def unlisted(error: OSError) -> None:
        raise DataError(f"the folder {error.filename} cannot be listed ({error.strerror}); allow it or move it away")

    for place, folders, names in os.walk(root, onerror=unlisted, followlinks=True):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        for name in names:
            path = Path(place) / name
            ending = ending_of(name)
            if not name.startswith(".") and ending and (pictures or ending not in DICOM) and path.is_file():
                yield path


def _check_place(folder: Path, source: Path) -> None:
    """The images' own folder is never written to."""
    source = source.resolve()
    if folder == source or folder.is_relative_to(source):
        raise DataError(f"the work folder {folder} lies inside the images' folder {source}; {ANOTHER}")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"the work folder {folder} is a file; {ANOTHER}")
