"""Which images a label server serves: those of a site's lists, or those below a folder."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmed.data.datalist import UNLABELED, Video, list_entries, listed_file, load_datalist, read_datalist
from fedmed.errors import DataError
from fedmed.kinds.find_kind import kind_by_look
from fedmed.settings.site import SiteConfig

CORRECTED = "corrected_labels"  # folder below data_root; see fedmed.labelling.corrections
LISTS = ("training", "validation", "testing", UNLABELED)
SKIPPED = {"labels", CORRECTED}
# As the link is spelled: MONAI Label knows some endings only, in small letters.
ENDINGS = {".nii.gz": ".nii.gz", ".nii": ".nii", ".png": ".png", ".jpg": ".jpg", ".jpeg": ".jpg"}
DICOM = {".dcm": ".dcm", ".dicom": ".dcm"}  # images of their own where they are radiographs
ENDINGS |= DICOM


def site_images(site: SiteConfig, everything: bool) -> list[Path]:
    """Images of a site, each once: of all lists, or of ``unlabeled`` and what corrections have moved from there.

    Of a site of videos they are the pictures of those that are folders of frames.

    Raises:
        DataError: no image, or a video that is a file.
    """
    form = kind_by_look(read_datalist(site.datalist)).form()
    cases = load_datalist(site.data_root, site.datalist, UNLABELED, required=False, form=form)
    for name in LISTS[:-1]:
        for number, entry in enumerate(list_entries(site.datalist, name)):
            if everything or _corrected(entry):
                where = f"{site.datalist}: entry {number} of '{name}'"
                cases.append({form.main: listed_file(site.data_root, where, form.main, entry)})
    if not cases:
        hint = "" if everything else f" has no '{UNLABELED}' {form.main}s; --all serves those of the other lists too"
        raise DataError(f"{site.datalist}{hint or f' lists no {form.main}'}")
    listed = dict.fromkeys(Path(case[form.main]) for case in cases)
    return [path for entry in listed for path in (_frames(entry) if form.main == Video.main else [entry])]


def _frames(video: Path) -> list[Path]:
    """Pictures of a video that is a folder of frames."""
    if not video.is_dir():
        raise DataError(
            f"{video} is a video, and the label server shows single pictures: write its frames into a folder "
            "(ffmpeg -i VIDEO -vf fps=1 FRAMES/%05d.png) and serve that folder"
        )
    return folder_images(video, pictures=False)


def _corrected(entry: Any) -> bool:
    """Whether the label of an entry is a mask, or a folder of masks, that a reader drew in the label server."""
    labels = [entry.get(key) for key in ("label", "masks")] if isinstance(entry, Mapping) else []
    return any(isinstance(label, str) and Path(label).is_relative_to(CORRECTED) for label in labels)


def folder_images(root: Path, pictures: bool) -> list[Path]:
    """Images below a folder; with ``pictures`` DICOM files too."""
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
            path, ending = Path(place) / name, ending_of(name)
            if not name.startswith(".") and ending and (pictures or ending not in DICOM) and path.is_file():
                yield path


def ending_of(name: str) -> str:
    """The ending in small letters if the file's name is that of an image, else nothing."""
    return next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
