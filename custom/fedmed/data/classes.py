"""Cases of classification: images without their labels, and a stratified part of the labelled ones."""

import hashlib
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmed.data.datalist import (
    HELD_OUT,
    UNLABELED,
    UnlabelledEntry,
    count_labelled,
    list_entries,
    listed_file,
    load_datalist,
)
from fedmed.errors import DataError

log = logging.getLogger("fedmed.data")


def load_images(
    data_root: Path | str,
    datalist: Path | str,
    keys: Sequence[str] = (UNLABELED, "training"),
    form: UnlabelledEntry | None = None,
    transductive: bool = False,
) -> list[dict[str, Any]]:
    """Return a site's images without labels, each once.

    Args:
        data_root, datalist: as for :func:`fedmed.data.datalist.load_datalist`.
        keys: lists to join; one may be missing. Images that are also listed for validation or testing are left out.
        form: how an entry looks, where it is not an image: :class:`fedmed.data.datalist.Video`.
        transductive: keep those that are listed for validation or testing, too; a score there tells nothing of others.

    Raises:
        DataError: ``keys`` names a held-out list, no list has an image, or an image is missing.
    """
    if held := [key for key in keys if key in HELD_OUT]:
        raise DataError(f"load_images: keys has '{held[0]}', whose images are never trained on; leave it out")
    root, path, form = Path(data_root), Path(datalist), form or UnlabelledEntry()
    listed = dict.fromkeys(image for key in keys for image in _images(root, path, key, form))
    held_out = {image for key in HELD_OUT for image in _images(root, path, key, form)} & listed.keys()
    if held_out:
        what = f"{len(held_out)} {form.main}s are also listed for validation or testing"
        log.warning("%s: %s and %s", path, what, "trained on without labels" if transductive else "left out")
    if labelled := sum(count_labelled(list_entries(path, key)) for key in keys if key != UNLABELED):
        log.info("%s: %d entries carry a label; this training does not look at labels", path, labelled)
    images = [image for image in listed if transductive or image not in held_out]
    if not images:
        raise DataError(f"{path}: none of the lists {', '.join(keys)} has {form.main}s to train on; list some there")
    return [{form.main: image} for image in images]


def labelled_fraction(cases: Sequence[Mapping[str, Any]], fraction: float, seed: int) -> list[Mapping[str, Any]]:
    """Return a part of labelled cases that has each class in its proportion, rounded by largest remainders.

    The size is ``fraction * len(cases)``, rounded, but at least one case of each class that is there. Within a class
    cases are ranked by a hash of seed and file name: the choice depends neither on their order, which stays, nor on
    where the data lie, and a larger fraction holds the cases of a smaller one as far as the rounding allows.

    Args:
        cases: with an int ``label``, as ``load_datalist(..., classes=...)`` returns them.
        fraction: in (0, 1].
        seed: of the choice.

    Raises:
        DataError: the fraction is out of range, or a case has no class.
    """
    if not 0 < fraction <= 1:
        raise DataError(f"the labelled fraction is {fraction}; use a number above 0 and at most 1")
    members: dict[int, list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        if not isinstance(case.get("label"), int):
            raise DataError(f"{case.get('image')}: has no class; give load_datalist the classes")
        members[case["label"]].append(place)
    chosen: set[int] = set()
    for label, count in _shares({label: len(places) for label, places in members.items()}, fraction).items():
        chosen.update(sorted(members[label], key=lambda place: _rank(str(cases[place]["image"]), seed))[:count])
    return [case for place, case in enumerate(cases) if place in chosen]


def _images(root: Path, datalist: Path, key: str, form: UnlabelledEntry) -> list[str]:
    if key == UNLABELED:
        return [case[form.main] for case in load_datalist(root, datalist, key, required=False, form=form)]
    entries = enumerate(list_entries(datalist, key))
    return [str(listed_file(root, f"{datalist}: entry {n} of '{key}'", form.main, entry)) for n, entry in entries]


def _shares(sizes: Mapping[int, int], fraction: float) -> dict[int, int]:
    """Cases of each class: whole parts of its quota, at least 1, then corrected where that misses the total least."""
    quota = {label: fraction * size for label, size in sorted(sizes.items())}
    total = max(len(sizes), math.floor(fraction * sum(sizes.values()) + 0.5))
    share = {label: max(1, math.floor(part)) for label, part in quota.items()}
    while sum(share.values()) < total:
        open_ = [label for label in share if share[label] < sizes[label]]
        share[max(open_, key=lambda label: quota[label] - share[label])] += 1
    while sum(share.values()) > total:
        spare = [label for label in share if share[label] > 1]
        share[min(spare, key=lambda label: quota[label] - share[label])] -= 1
    return share


def _rank(image: str, seed: int) -> tuple[str, str]:
    name = f"{seed}\0{Path(image).name}"
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest(), image
