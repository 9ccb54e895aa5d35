"""Words of a site that a bundle's configuration asks for: ``words_needed``, and what is wrong where one is missing.

words_needed: {procedure: operation that the videos show, such as nephrectomy}
words_needed: {procedure: [nephrectomy, prostatectomy]}      # these alone are known
words_needed: "$dict(procedure='operation of the videos') if @indicator == 'text' else {}"
"""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from monai.bundle import ConfigParser

from fedmed.bundles.network import parsed
from fedmed.errors import BundleError, SiteConfigError

NEEDED = "words_needed"
Needed = Mapping[str, str | list[str]]


def words_needed(parser: ConfigParser) -> Needed:
    """What a configuration needs of a site's words: name -> what it is, or the texts that are known.

    Raises:
        BundleError: it does not say so in one of these forms.
    """
    if NEEDED not in parser or parser[NEEDED] is None:
        return {}
    found = parsed(parser, NEEDED)
    if not isinstance(found, Mapping) or not all(_told(what) for what in found.values()):
        raise BundleError(f"'{NEEDED}' is {found!r}; it must be a mapping: word -> what it is, or a list of texts")
    return found


def _told(what: object) -> bool:
    return isinstance(what, str) or (isinstance(what, list) and bool(what) and all(isinstance(t, str) for t in what))


def words_fault(needed: Needed, words: Mapping[str, str]) -> str:
    """What is wrong with a site's words, and how to write them; empty where they are as needed."""
    for name, what in needed.items():
        known = what if isinstance(what, list) else None
        if name not in words:
            near = get_close_matches(name, words, 1)
            hint = f"; it has '{near[0]}': correct the name" if near else ""
            return f"'words' has no '{name}' ({_meaning(what)}){hint}; write 'words: {{{name}: {_example(what)}}}'"
        if known is not None and words[name] not in known:
            near = get_close_matches(words[name], known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(known)}"
            return f"'words.{name}' is '{words[name]}', which the bundle does not know; {hint}"
    return ""


def _meaning(what: str | list[str]) -> str:
    return what if isinstance(what, str) else f"one of {', '.join(what)}"


def _example(what: str | list[str]) -> str:
    return "…" if isinstance(what, str) else what[0]


def check_words(parser: ConfigParser, words: Mapping[str, str], source: Path, bundle: str) -> None:
    """Refuse a site whose words are not those that a bundle needs.

    Args:
        parser: the bundle's configuration with the site's facts.
        words: the site's own.
        source: the site's YAML, for the error.
        bundle: its name, for the error.

    Raises:
        SiteConfigError: names file, word, and what to write.
        BundleError: what the bundle says of the words that it needs cannot be used.
    """
    if fault := words_fault(words_needed(parser), words):
        raise SiteConfigError(f"{source}: bundle '{bundle}' needs a word of this site: {fault}")
