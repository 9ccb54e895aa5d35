"""Files from outside that a bundle can use, such as weights learnt from ImageNet."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError

KEY = "external_files"
EXAMPLE = """\
    external_files:
    - name: resnet50-0676ba61.pth         # of the file, or of a folder
      what: a state dict of torchvision's ResNet-50 trained on ImageNet
      source: https://download.pytorch.org/models/resnet50-0676ba61.pth
      licence: BSD-3-Clause
      sha256: 0676ba61                    # all 64 digits, or the first 8 or more; without it 'unverified' says why
      fills: [PhaseNet]                   # networks whose encoder it fills, at the server
      # word: indicator_path              # or: the word of a site's YAML that names it, below its data folder
      # when: {indicator: text}           # and settings with which a site needs it
"""
TEXTS = ("name", "what", "source", "licence")
KEYS = {*TEXTS, "sha256", "unverified", "bytes", "fills", "word", "when"}


@dataclass(frozen=True)
class ExternalFile:
    """A file or folder that nobody downloads: people carry it to where it must lie.

    Attributes:
        name: of the file or folder.
        what: that it holds, in words.
        source: page or address where it is published.
        licence: under which it may be used.
        sha256: of the file, 64 hexadecimal digits, or its beginning; empty where none is known.
        unverified: why no SHA-256 is known; empty where one is.
        bytes: size of the file, where it is known.
        fills: classes of networks whose encoder it fills.
        word: word of a site that names it, for a file of sites.
        when: setting -> value with which a site needs it.
    """

    name: str
    what: str
    source: str
    licence: str
    sha256: str = ""
    unverified: str = ""
    bytes: int | None = None
    fills: tuple[str, ...] = ()
    word: str = ""
    when: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def differs(self, digest: str) -> bool:
        """Tell whether a file's SHA-256 is not the published one, as far as that is known."""
        return not digest.startswith(self.sha256)


def external_files(bundle: Bundle) -> list[ExternalFile]:
    """Files from outside that a bundle can use, as its ``federation.yaml`` lists them.

    Raises:
        BundleError: an entry says something wrongly; names the entry and key, with an example.
    """
    listed = bundle.federation.get(KEY) or []
    where = f"{bundle.root}/configs/federation.yaml: '{KEY}'"
    if not isinstance(listed, list):
        raise BundleError(f"{where} is not a list. Example:\n{EXAMPLE}")
    for place, entry in enumerate(listed, 1):
        if fault := _fault(entry):
            raise BundleError(f"{where}, entry {place}: {fault}. Example:\n{EXAMPLE}")
    return [ExternalFile(**{**entry, "fills": tuple(entry.get("fills", ()))}) for entry in listed]


def encoder_content(bundle: Bundle, network: str) -> str | None:
    """Words for a file from which the encoder of a network can be filled; None if it cannot.

    Args:
        network: name of its class.

    Raises:
        BundleError: as :func:`external_files`.
    """
    if files := [one for one in external_files(bundle) if network in one.fills]:
        return " or ".join(f"{one.what}, such as {one.source}" for one in files)
    content: str | None = (bundle.federation.get("encoder") or {}).get(network)  # of bundles for FedMed 0.1
    return content


def _fault(entry: Any) -> str:
    """Say what is wrong with an entry; empty for a sound one."""
    if not isinstance(entry, Mapping):
        return f"{entry!r} does not hold 'key: value' lines"
    if strange := sorted(str(key) for key in entry if key not in KEYS):
        return f"unknown key '{strange[0]}'; there are {', '.join(sorted(KEYS))}"
    if wrong := [key for key in TEXTS if not isinstance(entry.get(key), str) or not entry[key]]:
        return f"'{wrong[0]}' must be a text"
    if not re.fullmatch(r"\w[\w.-]*", entry["name"]):
        return f"'name' is '{entry['name']}', which is not a plain file name"
    digest, reason = entry.get("sha256", ""), entry.get("unverified", "")
    if digest and not (isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{8,64}", digest)):
        return f"'sha256' is {digest!r}; give 8 to 64 small hexadecimal digits, in quotes"
    if bool(digest) == bool(reason) or not isinstance(reason, str):
        return "give either 'sha256', or 'unverified': why none is known"
    if not isinstance(entry.get("bytes", 0), int) or not isinstance(entry.get("when", {}), Mapping):
        return "'bytes' must be a whole number, and 'when' must be setting: value"
    fills, word = entry.get("fills", []), entry.get("word", "")
    if not isinstance(fills, list) or not isinstance(word, str) or bool(fills) == bool(word):
        return "give either 'fills', a list of networks, or 'word', a word of a site"
    return ""
