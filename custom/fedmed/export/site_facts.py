"""Words of the one site for which a bundle is made: written into its configs only where a person gives them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import BundleParser
from fedmed.bundles.site_words import words_fault, words_needed
from fedmed.errors import ExportError
from fedmed.settings.site_file import WORD_NAME, WORD_TEXT


def site_facts(bundle: Bundle, site: str | None, words: Mapping[str, str]) -> dict[str, Any]:
    """Return ids of the exported configs -> values that are the site's own; {} where nobody gives any.

    Args:
        bundle: of the run, with its overlays.
        site: whose model it is; None: the model of all.
        words: the site's.

    Raises:
        ExportError: words without a site, of a bundle that takes none, or not those that it needs.
    """
    if not words:
        return {}
    if site is None:
        raise ExportError("--word is of the site for which the bundle is made: name that with --site or --unseen")
    known = BundleParser.load_config_file(bundle.config_file("inference"))
    if "site_words" not in known:
        raise ExportError(f"bundle '{bundle.name}' takes no words of a site at inference; leave out --word")
    if fault := words_fault(words_needed(bundle.parser()), words):
        raise ExportError(f"bundle '{bundle.name}': {fault}, here as --word")
    return {"site_words": dict(words), **({"site_name": site} if "site_name" in known else {})}


def lacking_words(bundle: Bundle, words: Mapping[str, str]) -> dict[str, Any]:
    """For the metadata: names of words that the bundle needs and nobody has given; {} where it lacks none."""
    lacking = [name for name in words_needed(bundle.parser()) if name not in words]
    return {"words_needed": lacking} if lacking else {}


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
