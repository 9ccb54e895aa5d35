"""Facts of the one site for which a bundle is made; its words are written into it only where a person gives them."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import BundleParser
from fedmed.bundles.network import parsed
from fedmed.bundles.site_words import words_fault, words_needed
from fedmed.errors import ExportError
from fedmed.jobs.plan import TRAINING_ROLES, Plan
from fedmed.settings.site_file import WORD_NAME, WORD_TEXT

AT_EXPORT = "at_export"  # of federation.yaml: id of an exported config -> tensor of the run's that it gets


def site_facts(bundle: Bundle, plan: Plan, site: str | None, words: Mapping[str, str]) -> dict[str, Any]:
    """Return ids of the exported configs -> values that are those of the one site for which it is made.

    Its place among the sites that trained is such a value wherever the bundle has it; words, and with them the site's
    name, only where a person gives words.

    Args:
        bundle: of the run, with its overlays.
        plan: of the run.
        site: whose model it is, or for which it is, if it never trained; None: the model of all.
        words: the site's; a file that one names lies below the current folder.

    Raises:
        ExportError: words without a site, of a bundle that takes none, or not those that it needs.
        BundleError: what the bundle makes of them cannot be made, such as of a file that is missing.
    """
    if words and site is None:
        raise ExportError("--word is of the site for which the bundle is made: name that with --site or --unseen")
    known = _inference_ids(bundle)
    training = plan.of_role(*TRAINING_ROLES)
    index = training.index(site) if site in training else None
    place: dict[str, Any] = {"site_index": index, "site_count": len(training)} if site is not None else {}
    found = {id: value for id, value in place.items() if id in known}
    if words and "site_words" not in known:
        raise ExportError(f"bundle '{bundle.name}' takes no words of a site at inference; leave out --word")
    _check_words(bundle, site, words)
    if not words:
        return found
    found |= {"site_words": dict(words), **({"site_name": site} if "site_name" in known else {})}
    return found | _made_of_words(bundle, {**place, **found})


def _check_words(bundle: Bundle, site: str | None, words: Mapping[str, str]) -> None:
    needed = words_needed(bundle.parser())
    if words and (fault := words_fault(needed, words)):
        raise ExportError(f"bundle '{bundle.name}': {fault}, here as --word")
    if not words and site is not None and needed and bundle.federation.get(AT_EXPORT):
        told = " ".join(f"--word {name}=…" for name in needed)
        raise ExportError(f"the network of bundle '{bundle.name}' is made of words of site {site}: give {told}")


def _made_of_words(bundle: Bundle, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the bundle asks an export to write in place of words, such as a vector that a text encoder makes of them."""
    asked = bundle.federation.get(AT_EXPORT) or {}
    parser = bundle.parser(device="cpu", dataset_dir=str(Path.cwd()), **facts)
    made = {id: parsed(parser, source) for id, source in asked.items()}
    return {id: value.tolist() for id, value in made.items() if value is not None}


def facts_to_set(bundle: Bundle, site: str | None, words: Mapping[str, str]) -> dict[str, Any]:
    """For the metadata: what of a site whoever runs the bundle must set; {} where it lacks nothing.

    Returns:
        ``site_facts_needed``: ids of ``configs/inference.yaml``; ``words_needed``: names of the words among them.
    """
    if site is None or words:
        return {}
    ids = [id for id in ("site_name", "site_words") if id in _inference_ids(bundle)]
    return {"site_facts_needed": ids, "words_needed": list(words_needed(bundle.parser()))} if ids else {}


def _inference_ids(bundle: Bundle) -> Collection[str]:
    return BundleParser.load_config_file(bundle.config_file("inference"))


def words_of(given: Sequence[str]) -> dict[str, str]:
    """Words of a site as a person gives them, ``NAME=TEXT`` each; the same as in a site's YAML.

    Raises:
        ExportError: one that is not such a word.
    """
    found = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not re.fullmatch(WORD_NAME, name) or not re.fullmatch(WORD_TEXT, text):
            raise ExportError(f"--word '{one}' is not a word of a site; write it as procedure=nephrectomy")
        found[name] = text
    return found
