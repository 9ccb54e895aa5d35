"""Each site's cases in one arm: with masks, without them, or pooled with those of other sites."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmed.data.datalist import (
    EXAMPLE,
    LABEL_KEYS,
    LABELLED,
    PATH_KEYS,
    UNLABELED,
    list_entries,
    names_path,
    read_datalist,
)
from fedmed.errors import DataError, JobError
from fedmed.files import write_atomically
from fedmed.methods.method import Method
from fedmed.settings.site import SiteConfig

SYNTHETIC = "synthetic"  # list of labelled pictures of nobody, which a labelled site may train on beside its own
CENTRALISED = "pool"  # site that holds the cases of several


def site_for(config: SiteConfig, role: str, folder: Path, labelled: str | None = None) -> SiteConfig:
    """The site's settings with the lists of a role, written below ``folder``.

    An ``unsupervised`` site is one whose masks nobody has drawn: it has what it could have trained on, and further
    scans. For the other roles, scans without masks are left out. ``labelled`` is the name of a datalist beside the
    site's own that has masks for all cases.

    Raises:
        DataError: no readable datalist, or the one with masks is missing.
    """
    path = config.datalist.with_name(labelled) if labelled else config.datalist
    if labelled and not path.is_file():
        if role != "unsupervised":
            raise DataError(f"{path} does not exist; 'labelled' in the federation's YAML names it, so write it")
        path = config.datalist  # a population without any masks has only the one
    there = read_datalist(path)
    lists = {name: listed(path, name) for name in (*LABELLED, SYNTHETIC) if name in there}
    if role == "unsupervised":
        scans = [*lists.pop("training", []), *listed(path, UNLABELED)]
        for name in ("validation", SYNTHETIC):
            lists.pop(name, None)
        lists = {UNLABELED: [{key: value for key, value in e.items() if key not in LABEL_KEYS} for e in scans], **lists}
    return with_list(config, folder, lists)


def pooled_site(members: Sequence[SiteConfig], names: Sequence[str], folder: Path) -> SiteConfig:
    """One site that holds these lists of several: the bound that federated training is compared with."""
    roots = [Path(os.path.abspath(config.data_root)) for config in members]  # by links as the sites: caches go by path
    root = Path(os.path.commonpath(roots))

    def moved(data_root: Path, key: str, value: Any) -> Any:
        return str(data_root.relative_to(root) / value) if names_path(data_root, key, value) else value

    lists = {
        name: [
            {key: moved(data_root, key, value) for key, value in entry.items()}
            for config, data_root in zip(members, roots, strict=True)
            for entry in listed(config.datalist, name)
        ]
        for name in names
    }
    return with_list(replace(members[0], site=CENTRALISED, data_root=root), folder, lists)


def listed(path: Path, name: str) -> list[Mapping[str, Any]]:
    """Entries of one list of a datalist, if it has it; a DataError where one names no image or video."""
    entries = list_entries(path, name)
    if not all(isinstance(entry, Mapping) and (entry.get("image") or entry.get("video")) for entry in entries):
        raise DataError(f"{path}: '{name}' must be a list of entries that name an 'image' or a 'video', like {EXAMPLE}")
    return entries


def with_list(config: SiteConfig, folder: Path, lists: Mapping[str, list[Any]], name: str = "") -> SiteConfig:
    """The site's settings with these lists, written under a name of their content.

    Another command may be reading older ones now. The file's name begins with ``name``, or the site's.
    """
    text = json.dumps(lists, indent=1) + "\n"
    path = folder / f"{name or config.site}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    write_atomically(path, lambda stream: stream.write(text.encode()))
    return replace(config, datalist=path)


def require_values(method: Method, sites: Iterable[tuple[SiteConfig, str]]) -> None:
    """Refuse sites that would not send what a method works with: the scores would be those of another method.

    Args:
        method: what is trained.
        sites: each site that trains, and its role.

    Raises:
        JobError: names the first one, the value and the file.
    """
    for config, role in sites:
        needed = [value.name for value in method.values() if value.needed and value.sent_by in ("", role)]
        if missing := [name for name in needed if name not in config.privacy.allowed_extras]:
            raise JobError(
                f"{config.source}: the site '{config.site}' does not send '{missing[0]}', which '{method.title}' works "
                f"with; for this table, write privacy: {{allowed_extras: [{', '.join(needed)}]}} there"
            )


def state_of_files(config: SiteConfig) -> str:
    """A hash of path, size and time of change of every file in a site's lists."""
    lists = json.loads(config.datalist.read_text(encoding="utf-8"))
    names = sorted({entry[key] for entries in lists.values() for entry in entries for key in PATH_KEYS if key in entry})
    return hashlib.sha256(repr([(name, *_state(config.data_root / name)) for name in names]).encode()).hexdigest()


def _state(path: Path) -> tuple[int, int]:
    try:
        facts = path.stat()
    except OSError:  # that it is missing is said by the run that needs it
        return 0, 0
    return facts.st_size, facts.st_mtime_ns
