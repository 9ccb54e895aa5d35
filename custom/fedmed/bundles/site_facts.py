"""Facts that a machine fills into a bundle's configuration: all that there are, and which a bundle may lack."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from monai.bundle import ConfigParser

from fedmed.errors import BundleError

LIKE = 0.8  # similarity from which another id is taken for a misspelt one


@dataclass(frozen=True)
class SiteFact:
    """One fact.

    Attributes:
        what: in words.
        optional: whether a bundle that has no use for it may leave it out of its configuration.
    """

    what: str
    optional: bool = True


FACTS = {
    "dataset_dir": SiteFact("folder of the site's images", optional=False),
    "datalist": SiteFact("the site's lists of images", optional=False),
    "device": SiteFact("where tensors lie, such as cpu or cuda:0", optional=False),
    "epoch_length": SiteFact("optimizer steps of a round", optional=False),
    "max_epochs": SiteFact("1: a round is one epoch of the trainer", optional=False),
    "evaluation_dir": SiteFact("where the recorder of a test writes; it stays at the site", optional=False),
    "output_dir": SiteFact("where anything else is written; it stays at the site"),
    "cache_dir": SiteFact("where prepared cases lie"),
    "amp": SiteFact("whether to compute in mixed precision"),
    "num_workers": SiteFact("processes that load images"),
    "seed": SiteFact("of the order of the images; another in each round and at each site"),
    "augment_seed": SiteFact("of augmentation by the engine, likewise"),
    "site_min_images": SiteFact("images of which the site sends statistics at least, or null"),
    "site_name": SiteFact("the site's name in the federation"),
    "site_words": SiteFact("the site's own words, such as {procedure: nephrectomy}, a mapping of texts"),
    "at_site": SiteFact("whether this machine is a site; false at the server, which builds the same network"),
    "site_index": SiteFact("its place among the sites that train, by name, from 0; null where it does not train"),
    "site_count": SiteFact("sites of the job that train"),
    "encoder_checkpoint": SiteFact("file from which the server fills the network's encoder, or null"),
    "round": SiteFact("the round, counted from 0"),
    "rounds": SiteFact("rounds of the job"),
    "steps_before": SiteFact("optimizer steps of the site before this round"),
    "steps_total": SiteFact("optimizer steps of the site in the whole job"),
    "epochs_before": SiteFact("passes over the images before this round, for a schedule"),
}


def config_ids(parser: ConfigParser) -> list[str]:
    """Ids of a configuration's first level."""
    config: Any = parser.config
    return list(config or ())


def usable_facts(facts: Mapping[str, Any], ids: Collection[str], where: str) -> dict[str, Any]:
    """Return the facts that a configuration has; others may be left out only where a bundle may lack them.

    Args:
        facts: name -> value.
        ids: of the configuration's first level.
        where: the bundle, for errors.

    Raises:
        BundleError: a fact that there is not, or one that the configuration lacks and must have, or that it seems to
            misspell; with the nearest name.
    """
    for name in facts:
        if name not in FACTS:
            raise BundleError(f"'{name}' is not a fact that a machine fills into a bundle{_near(name, FACTS)}")
        if name not in ids and (fault := missing_fact(name, ids)):
            raise BundleError(f"{where}: {fault}")
    return {name: value for name, value in facts.items() if name in ids}


def missing_fact(name: str, ids: Collection[str]) -> str:
    """What is wrong with a configuration that lacks a fact; empty if it may."""
    others = [id for id in ids if id not in FACTS]
    near = get_close_matches(name, others, 1, LIKE)
    if FACTS[name].optional and not near:
        return ""
    hint = f"; it has '{near[0]}': correct the name" if near else f"; write '{name}: …' there"
    return f"configs/train.yaml has no '{name}' ({FACTS[name].what}), which each site fills in{hint}"


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1, LIKE)
    return f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(known)}"
