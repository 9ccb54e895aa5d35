"""A second datalist of a synthetic CT hospital, in which every scan has its mask, for experiments."""

import json
import logging
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from filelock import FileLock

from fedmed.data.datalist import LABELLED_DATALIST, UNLABELED
from fedmed.errors import DataError
from fedmed.files import write_atomically
from fedmed_demo.chest_ct import patients_of, write_patient
from fedmed_demo.federation import KINDS, THREADS, demo_site
from fedmed_demo.hospitals import SiteProfile

log = logging.getLogger("fedmed.demo")
TRAINING_LISTS, TESTS = ("training", "validation"), "testing"


def labelled_list(kind: str, site: str, root: Path | str | None = None, seed: int = 0) -> Path:
    """Return ``datalist_labelled.json`` beside a demo site's own list; the first call draws what it needs (minutes).

    ``training`` and ``validation`` are the site's own, and the scans of ``unlabeled`` train with masks. ``testing``,
    and a ``validation`` that the site does not have, are of further patients: more of them than a demo has time for,
    and nobody has chosen a setting by them. The site's own list and images stay as they are.

    Args:
        kind, site, root, seed: as for :func:`demo_site`, of a kind of CT whose profiles name further patients, or of
            videos, which have the list from the beginning.

    Raises:
        DataError: as :func:`demo_site`, or the site has no such list.
    """
    folder = demo_site(kind, site, root, seed)
    profile, path = KINDS[kind][site], folder / LABELLED_DATALIST
    if path.is_file():
        return path
    if not isinstance(profile, SiteProfile) or not profile.further:
        raise DataError(f"demo site '{site}' of '{kind}' has no {LABELLED_DATALIST}; leave it out")
    with FileLock(folder.parent / f".{profile.name}.lock"):
        if not path.is_file():
            log.info("drawing masks and further patients of the demo site %s; this happens once", site)
            text = json.dumps(_lists(profile, folder, seed), indent=2) + "\n"
            write_atomically(path, lambda stream: stream.write(text.encode()))
    return path


def _lists(profile: SiteProfile, folder: Path, seed: int) -> dict[str, list[dict[str, str]]]:
    """The lists; the caller holds the site's lock. Files come into the folder whole."""
    patients, written = patients_of(profile), json.loads((folder / "datalist.json").read_text(encoding="utf-8"))
    further = patients[sum(profile.counts.values()) :]
    drawn = [patient for patient in patients if patient[0] == UNLABELED] + further
    making = Path(tempfile.mkdtemp(prefix=f".{profile.name}.masks-", dir=folder.parent))
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            draw = partial(write_patient, profile, making, seed, masked=True)
            entries = list(pool.map(draw, *zip(*drawn, strict=True)))
        for made in sorted(path for path in making.rglob("*") if path.is_file()):
            final = folder / made.relative_to(making)
            final.parent.mkdir(exist_ok=True)
            if not final.is_file():  # the images of its own are there already, and equal
                made.rename(final)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    lists = {name: list(written.get(name, [])) for name in TRAINING_LISTS} | {TESTS: []}
    for (name, _), entry in zip(drawn, entries, strict=True):
        lists["training" if name == UNLABELED else name].append(entry)
    return {name: entries for name, entries in lists.items() if entries}
