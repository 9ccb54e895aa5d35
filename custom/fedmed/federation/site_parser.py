"""A bundle's configuration for one task at one site."""

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.network import parsed
from fedmed.bundles.site_words import check_words
from fedmed.data.datalist import list_entries
from fedmed.data.entry_forms import UNLABELED
from fedmed.errors import BundleError
from fedmed.messages.task import Task
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig

log = logging.getLogger("fedmed.site")

READS_VALIDATION = re.compile("@validate(::|#)")


def site_facts(site: SiteConfig) -> dict[str, Any]:
    """Ids of a configuration that only the site knows -> values, whatever the task."""
    return {
        "dataset_dir": str(site.data_root),
        "datalist": str(site.datalist),
        "device": site.device,
        "amp": site.amp,
        "num_workers": site.workers,
        "cache_dir": str(site.cache_dir),
        "site_min_images": site.privacy.extras_min_images,
        **own_words(site),
    }


def own_words(site: SiteConfig) -> dict[str, Any]:
    """Facts by which a network may know at which site it is; they stay there."""
    return {"site_name": site.site, "site_words": dict(site.words)}


def place_facts(task: Task) -> dict[str, Any]:
    """The site's place among those that train, as the task says it; ``{}`` where it says nothing."""
    return {} if task.site_count is None else {"site_index": task.site_index, "site_count": task.site_count}


def site_parser(
    bundle: Bundle, site: SiteConfig, folder: Path, task: Task, seed: int, facts: Mapping[str, Any]
) -> ConfigParser:
    """Return the bundle's configuration with the site's own facts and what the task asks for.

    Args:
        bundle: with the job's overlays and overrides.
        site: its settings.
        folder: the job's folder at the site.
        task: its round, the site's place, and epochs, from which ``epoch_length`` follows.
        seed: the job's seed.
        facts: further ids -> values; those that the configuration does not have are left out.

    Raises:
        BundleError: the configuration cannot be read, or for epochs its training list cannot be built.
        SiteConfigError: the bundle needs a word that the site's YAML does not have.
        DataError: for epochs, the site's training list cannot be read.
    """
    parser = bundle.parser(
        **site_facts(site),
        output_dir=str(folder / "bundle"),
        round=max(task.round, 0),
        rounds=task.total_rounds,
        epochs_before=max(task.round, 0) * (task.epochs or 1),
        seed=derive_seed(seed, site.site, task.round, "sampling"),
        augment_seed=derive_seed(seed, site.site, task.round, "augmentation"),
        **place_facts(task),
        **facts,
    )
    check_words(parser, site.words, site.source, bundle.name)
    # What a stand-alone training does around itself (checkpoints, validation) is the federation's work here; what a
    # method needs in a federation is listed under `train#federated_handlers`.
    parts = [part for part in ("train", "validate", "evaluate") if part in parser]
    parser.update({f"{part}#handlers": [] for part in parts})
    _leave_out_validation(parser, site)
    if site.max_batch_size and parser["batch_size"] > site.max_batch_size:
        log.warning("%s: batch size %d cut to this site's max_batch_size", site.site, parser["batch_size"])
        parser["batch_size"] = site.max_batch_size
    if task.epochs:  # before anything is built from it: a later change would make all of it anew
        batches = task.epochs * len(parsed(parser, "train#data")) / parser["batch_size"]
        parser["epoch_length"] = max(1, math.ceil(batches - 1e-9))  # 0.07 · 100 is 7.000000000000001
    if task.steps or task.epochs:
        parser.update(steps_facts(task, parser["epoch_length"]))
    return parser


def _leave_out_validation(parser: ConfigParser, site: SiteConfig) -> None:
    """Corrections get None for what reads the validation list, where the site has none."""
    corrections = (parser["train#corrections"] or []) if "train#corrections" in parser else []
    reading = [
        f"train#corrections#{number}#{name}"
        for number, values in enumerate(corrections)
        for name, value in values.items()
        if READS_VALIDATION.match(str(value))
    ]
    if reading and not list_entries(site.datalist, "validation"):
        parser.update(dict.fromkeys(reading))


def mention_unused(site: SiteConfig) -> None:
    """A supervised site trains on masks alone; say so rather than leave scans unused in silence."""
    if unused := list_entries(site.datalist, UNLABELED):
        hint = "give it the role 'unsupervised' to learn from both lists"
        log.warning("%s: %d unlabelled scans are not used by a supervised site; %s", site.site, len(unused), hint)


def steps_facts(task: Task, steps: int) -> dict[str, int]:
    """Steps before this round and in all rounds, if each has ``steps``; rounds that a site sits out count too."""
    return {"steps_before": max(task.round, 0) * steps, "steps_total": task.total_rounds * steps}


def listed(parser: ConfigParser, part: str, name: str) -> list[Any]:
    """Build the objects that a part of the configuration lists under a name; [] where it lists none.

    Raises:
        BundleError: they cannot be built, or it is not a list.
    """
    id = f"{part}#{name}"
    if id not in parser or not parser[id]:
        return []
    found = parsed(parser, id)
    if not isinstance(found, list):
        raise BundleError(f"'{part}#{name}' is a {type(found).__name__}; it must be a list")
    return found
