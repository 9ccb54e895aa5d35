"""Fingerprint of a site: measured at the site, from a few of its images, before the first round."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.data.datalist import UNLABELED, entries_of, listed_file, read_datalist
from fedmed.data.fingerprint.facts import ImageFacts, Read, summary
from fedmed.errors import DataError
from fedmed.kinds.find_kind import named_class
from fedmed.kinds.kind import Kind
from fedmed.messages.fingerprint import AXES, GRID, LISTS, NAME, rounded_up
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig

SAMPLES = {"volume": 20, "picture": 50, "video": 20}  # images that are looked at
PICTURES = "radiograph"  # the word for pictures among the readers of a kind
SHARE_STEP = 0.05  # of classes
Chosen = tuple[str, int, Any]  # list, number and entry
Measure = Callable[[Mapping[str, Path]], ImageFacts]
log = logging.getLogger("fedmed.site")


def site_fingerprint(site: SiteConfig, kind: Kind, bundle: Bundle, role: str, seed: int) -> dict[str, Any]:
    """Measure a site, in the form of :mod:`fedmed.messages.fingerprint`.

    Of fewer images than ``privacy.min_cases`` nothing is told but counts. An image that cannot be read is left out and
    named in the site's log: training says what is wrong with it.

    Raises:
        DataError: the datalist cannot be read.
    """
    started, content, least = time.monotonic(), read_datalist(site.datalist), site.privacy.min_cases
    word, path = kind.looks
    image = "picture" if word in (PICTURES, "") else word
    listed = {key: entries_of(content, site.datalist, key) for key in LISTS}
    values: dict[str, Any] = {"images": image, **device_facts(site)}
    values["counts"] = {key: rounded_up(len(entries)) for key, entries in listed.items()}
    labelled = kind.labelled and (role != "unsupervised" or kind.both_lists)
    names = [one.name for one in bundle.classes]
    values |= _class_shares(kind, listed, names, least) if labelled else {}
    chosen = _chosen(listed, role, SAMPLES[image], derive_seed(seed, site.site, NAME)) if path else iter(())
    read = _reader(bundle) if path and image == "picture" else None
    facts = list(
        _measured(site, kind, chosen, lambda files: named_class(path, "'measures'")(files, names, read), labelled)
    )
    if len(facts) >= least:
        values |= {"measured": rounded_up(len(facts)), **_values_of(facts, image)}
    elif facts:
        text = "%s: the fingerprint tells counts alone: %d images are fewer than the %d of 'privacy.min_cases'"
        log.info(text, site.site, len(facts), least)
    log.info("%s: fingerprint of %d images in %.1f s", site.site, len(facts), time.monotonic() - started)
    return values


def _measured(
    site: SiteConfig, kind: Kind, chosen: Iterable[Chosen], measure: Measure, labelled: bool
) -> Iterator[ImageFacts]:
    """Facts of the chosen images, without those that cannot be read."""
    for key, number, entry in chosen:
        where = f"{site.datalist}: entry {number} of '{key}'"
        try:
            yield measure(_files(site.data_root, kind, key, where, entry, labelled))
        except (DataError, MemoryError) as error:
            log.warning("%s: %s is left out of the fingerprint: %s", site.site, where, error)


def _values_of(facts: Sequence[ImageFacts], image: str) -> dict[str, Any]:
    made = summary(facts, AXES[image], GRID)
    return {**made, "classes": _in_steps(made["classes"])} if "classes" in made else made


def device_facts(site: SiteConfig) -> dict[str, Any]:
    """Kind of the site's device and its memory in whole GiB: of the GPU, or the machine's."""
    if site.device.startswith("cuda"):
        total = torch.cuda.get_device_properties(torch.device(site.device)).total_memory
        return {"device": "cuda", "memory": total // 2**30}
    return {"device": "cpu", "memory": psutil.virtual_memory().total // 2**30}


def _chosen(listed: Mapping[str, Sequence[Any]], role: str, most: int, seed: int) -> Iterator[Chosen]:
    """Entries to look at, the same for the same seed: of what the site trains on, else of what it is scored on."""
    keys = ("testing", "validation") if role == "evaluate" else ("training", UNLABELED)
    used = keys if any(listed[key] for key in keys) else LISTS
    places = [(key, number) for key in used for number in range(len(listed[key]))]
    for key, number in sorted(Random(seed).sample(places, min(most, len(places)))):
        yield key, number, listed[key][number]


def _files(root: Path, kind: Kind, key: str, where: str, entry: Any, labelled: bool) -> dict[str, Path]:
    """The entry's files by their names in the datalist; without labels only the image or video."""
    form = kind.form()
    names = form.files(key) if labelled else (form.main,)
    return {name: listed_file(root, where, name, entry) for name in names}


def _class_shares(kind: Kind, listed: Mapping[str, Sequence[Any]], names: Sequence[str], least: int) -> dict[str, Any]:
    """Shares of labels that are words; a word that is none of the study's classes is only counted."""
    form, words = kind.form(names), Counter[str]()
    for key in LISTS:
        for entry in listed[key] if key != UNLABELED else ():
            word = form.word(key, entry) if isinstance(entry, Mapping) else None
            words.update([word] if isinstance(word, str) else [])
    if not words or words.total() < least:
        return {}
    known = {str(number): words[name] / words.total() for number, name in enumerate(names)}
    others = 1 - sum(words[name] for name in names) / words.total()
    return {"classes": _in_steps(known), "other_classes": max(SHARE_STEP, _step(others)) if others > 1e-9 else 0.0}


def _in_steps(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares to the next twentieth: with the rounded counts they tell no exact number."""
    return {name: _step(share) for name, share in shares.items()}


def _step(share: float) -> float:
    return round(round(share / SHARE_STEP) * SHARE_STEP, 2)


def _reader(bundle: Bundle) -> Read | None:
    """The first transform of the bundle's preparation, which reads the file; None where it has none."""
    parser = bundle.parser(device="cpu")
    if "validate#preprocessing" not in parser:
        return None
    reader = parsed(parser, "validate#preprocessing").flatten().transforms[0]
    return lambda path: np.asarray(reader({"image": str(path)})["image"])[0]
