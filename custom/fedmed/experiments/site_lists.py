"""Each site's cases in one arm: with masks, without them, or pooled with those of other sites."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmed.data.datalist import EXAMPLE, read_datalist
from fedmed.data.entry_forms import FILE_KEYS, UNLABELED
from fedmed.errors import DataError
from fedmed.experiments.federation_data import POOL
from fedmed.files import write_atomically
from fedmed.settings.site import SiteConfig

LABELLED = ("training", "validation", "testing")


class SiteCases:
    """The lists of one site, with paths relative to any folder above them.

    Args:
        config: the site's settings.
        labelled: name of a datalist beside the site's own that has masks for all cases; None = its own.

    Raises:
        DataError: no readable datalist.
    """

    def __init__(self, config: SiteConfig, labelled: str | None = None) -> None:
        self.config = config
        wanted = config.datalist.with_name(labelled) if labelled else config.datalist
        # A population without any masks has only the one datalist.
        path = wanted if wanted.is_file() else config.datalist
        self.lacks = wanted if path != wanted else None
        self.lists = read_datalist(path)
        for name in (*LABELLED, UNLABELED):
            entries = self.lists.get(name, [])
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise DataError(f"{path}: '{name}' is no list of cases. Example: {EXAMPLE}")

    def supervised(self) -> dict[str, list]:
        """Lists of a site that trains on its masks, or is only tested: scans without masks are left out.

        Raises:
            DataError: the datalist with masks is missing.
        """
        if self.lacks:
            raise DataError(f"{self.lacks} does not exist; 'labelled' in the federation's YAML names it, so write it")
        return {name: self.lists[name] for name in LABELLED if name in self.lists}

    def unsupervised(self) -> dict[str, list]:
        """Lists of a site whose masks nobody has drawn: what it could have trained on, and further scans."""
        scans = [entry for name in ("training", "unlabeled") for entry in self.lists.get(name, [])]
        bare = [{key: value for key, value in entry.items() if key != "label"} for entry in scans]
        return {"unlabeled": bare, **({"testing": self.lists["testing"]} if "testing" in self.lists else {})}

    def below(self, root: Path, name: str) -> list[dict[str, Any]]:
        """One list with paths relative to ``root``, a folder above the site's own."""
        prefix, entries = self.config.data_root.resolve().relative_to(root.resolve()), self.lists.get(name, [])
        own = self.config.data_root

        def moved(key: str, value: Any) -> Any:
            return str(prefix / value) if key in FILE_KEYS and (own / value).is_file() else value

        return [{key: moved(key, value) for key, value in entry.items()} for entry in entries]


def site_for(cases: SiteCases, role: str, folder: Path) -> SiteConfig:
    """The site's settings with the lists of a role, written below ``folder``."""
    lists = cases.unsupervised() if role == "unsupervised" else cases.supervised()
    return replace(cases.config, datalist=write_list(folder, cases.config.site, lists))


def pooled_site(members: Sequence[SiteCases], folder: Path) -> SiteConfig:
    """One site that holds the labelled cases of several; it is the bound that federated training is compared with."""
    root = Path(os.path.commonpath([cases.config.data_root.resolve() for cases in members]))
    lists = {name: [entry for cases in members for entry in cases.below(root, name)] for name in LABELLED[:2]}
    return replace(members[0].config, site=POOL, data_root=root, datalist=write_list(folder, POOL, lists))


def state_of_files(config: SiteConfig) -> str:
    """A hash of path, size and time of change of every image and mask in a site's lists."""
    lists = json.loads(config.datalist.read_text(encoding="utf-8"))
    names = sorted({entry[key] for entries in lists.values() for entry in entries for key in FILE_KEYS if key in entry})
    return hashlib.sha256(repr([(name, *_state(config.data_root / name)) for name in names]).encode()).hexdigest()


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:  # that it is missing is said by the run that needs it
        return 0, 0
    return found.st_size, found.st_mtime_ns


def write_list(folder: Path, name: str, lists: Mapping[str, list]) -> Path:
    """Write lists under a name of their content: another command may be reading the older ones now."""
    text = json.dumps(lists, indent=1) + "\n"
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    write_atomically(path, lambda stream: stream.write(text.encode()))
    return path
