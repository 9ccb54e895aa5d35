"""Each site's cases in one arm: with masks, without them, or pooled with those of other sites."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmed.data.datalist import FILE_KEYS
from fedmed.errors import DataError
from fedmed.federation.site import SiteConfig

POOL = "pool"
LABELLED = ("training", "validation", "testing")


class Cases:
    """The lists of one site, with paths relative to any folder above them.

    Args:
        config: the site's settings.
        labelled: name of a datalist beside the site's own that has masks for all cases; None = its own.

    Raises:
        DataError: no readable datalist.
    """

    def __init__(self, config: SiteConfig, labelled: str | None = None) -> None:
        self.config = config
        path = config.datalist.with_name(labelled) if labelled else config.datalist
        # A population without any masks has only the one datalist.
        path = path if path.is_file() else config.datalist
        try:
            self.lists: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: the datalist cannot be read ({error})") from error

    def supervised(self) -> dict[str, list]:
        """Lists of a site that trains on its masks, or is only tested: scans without masks are left out."""
        return {name: self.lists[name] for name in LABELLED if name in self.lists}

    def unsupervised(self) -> dict[str, list]:
        """Lists of a site whose masks nobody has drawn: what it could have trained on, and further scans."""
        scans = [entry for name in ("training", "unlabeled") for entry in self.lists.get(name, [])]
        bare = [{key: value for key, value in entry.items() if key != "label"} for entry in scans]
        return {"unlabeled": bare, **({"testing": self.lists["testing"]} if "testing" in self.lists else {})}

    def below(self, root: Path, name: str) -> list[dict[str, Any]]:
        """One list with paths relative to ``root``, a folder above the site's own."""
        prefix = self.config.data_root.resolve().relative_to(root.resolve())
        return [
            {key: str(prefix / value) if key in FILE_KEYS else value for key, value in entry.items()}
            for entry in self.lists.get(name, [])
        ]


def site_for(cases: Cases, role: str, folder: Path) -> SiteConfig:
    """The site's settings with the lists of a role, written below ``folder``."""
    lists = cases.unsupervised() if role == "unsupervised" else cases.supervised()
    return replace(cases.config, datalist=_write(folder / f"{cases.config.site}.json", lists))


def pooled_site(members: Sequence[Cases], folder: Path) -> SiteConfig:
    """One site that holds the labelled cases of several; it is the bound that federated training is compared with."""
    root = Path(os.path.commonpath([cases.config.data_root.resolve() for cases in members]))
    lists = {name: [entry for cases in members for entry in cases.below(root, name)] for name in LABELLED[:2]}
    return replace(members[0].config, site=POOL, data_root=root, datalist=_write(folder / f"{POOL}.json", lists))


def _write(path: Path, lists: Mapping[str, list]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")
    return path
