"""Facts and words of a site that are filled into a bundle's configuration, and what is wrong where one is missing."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from fedmed.bundles.bundle_parser import parsed
from fedmed.errors import BundleError, SiteConfigError

LIKE = 0.8  # similarity from which another id is taken for a misspelt one
NEEDED = "words_needed"
Needed = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class SiteFact:
    """One fact in words; a bundle that has no use for an optional one may leave it out of its configuration."""

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

    Raises:
        BundleError: a fact that there is not, or one that the configuration lacks and must have, or that it seems to
            misspell; with the nearest name.
    """
    for name in facts:
        if name not in FACTS:
            near = _nearest(name, tuple(FACTS))
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(FACTS)}"
            raise BundleError(f"'{name}' is not a fact that a machine fills into a bundle; {hint}")
        if name not in ids and (fault := missing_fact(name, ids)):
            raise BundleError(f"{where}: {fault}")
    return {name: value for name, value in facts.items() if name in ids}


@lru_cache(maxsize=256)
def _nearest(name: str, others: tuple[str, ...]) -> list[str]:
    return get_close_matches(name, others, 1, LIKE)


def missing_fact(name: str, ids: Collection[str]) -> str:
    """Say what is wrong with a configuration that lacks a fact; empty if it may."""
    near = _nearest(name, tuple(id for id in ids if id not in FACTS))
    if FACTS[name].optional and not near:
        return ""
    hint = f"; it has '{near[0]}': correct the name" if near else f"; write '{name}: …' there"
    return f"configs/train.yaml has no '{name}' ({FACTS[name].what}), which each site fills in{hint}"


def attributes_needed(parser: ConfigParser) -> Needed:
    """Words of a site that a configuration needs: name -> what it is, or the texts that are known.

    Raises:
        BundleError: it does not say so in one of these forms.
    """
    if NEEDED not in parser or parser[NEEDED] is None:
        return {}
    needed = parsed(parser, NEEDED)
    if not isinstance(needed, Mapping) or not all(_is_described(what) for what in needed.values()):
        raise BundleError(f"'{NEEDED}' is {needed!r}; it must be a mapping: word -> what it is, or a list of texts")
    return needed


def _is_described(what: object) -> bool:
    return isinstance(what, str) or (isinstance(what, list) and bool(what) and all(isinstance(t, str) for t in what))


def attributes_fault(needed: Needed, words: Mapping[str, str]) -> str:
    """Say what is wrong with a site's words, and how to write them; empty where they are as needed."""
    for name, what in needed.items():
        known = what if isinstance(what, list) else []
        if name not in words:
            near = get_close_matches(name, words, 1)
            hint = f"; it has '{near[0]}': correct the name" if near else ""
            meaning, example = (f"one of {', '.join(known)}", known[0]) if known else (what, "…")
            return f"'words' has no '{name}' ({meaning}){hint}; write 'words: {{{name}: {example}}}'"
        if known and words[name] not in known:
            near = get_close_matches(words[name], known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(known)}"
            return f"'words.{name}' is '{words[name]}', which the bundle does not know; {hint}"
    return ""


def check_attributes(parser: ConfigParser, words: Mapping[str, str], source: Path, bundle: str) -> None:
    """Refuse a site whose words are not those that a bundle needs.

    Raises:
        SiteConfigError: names file, word, and what to write.
        BundleError: what the bundle says of the words that it needs cannot be used.
    """
    if fault := attributes_fault(attributes_needed(parser), words):
        raise SiteConfigError(f"{source}: bundle '{bundle}' needs a word of this site: {fault}")
