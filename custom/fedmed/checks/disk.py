"""Is there room for what a site will write, and may it be written there?"""

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmed.checks.site_findings import SiteFinding
from fedmed.data.cache import FOLDER, prepared_sizes
from fedmed.reports.words import size
from fedmed.settings.site import SiteConfig

STATES = 3 * 3 + 2  # rounds that are kept, of a tensor and Adam's two moments; and twice the site's own best model
COMFORT = 2  # below so many times the need, a note


@dataclass(frozen=True)
class Space:
    """What a folder needs, what is free on its disk, and what it holds already that could be deleted, in bytes."""

    what: str
    folder: Path
    needed: int
    free: int
    held: int = 0


def state_bytes(model_bytes: int | None) -> int:
    """Estimate what a job keeps at the site: three rounds of the model with Adam's moments, and its own best."""
    return STATES * (model_bytes or 0)


def check_disk(
    site: SiteConfig, workspace: Path | None, cache: int, state: int
) -> tuple[list[Space], list[SiteFinding]]:
    """Compare needs with free space, folder by folder and together where they lie on one disk.

    Args:
        site, workspace: its ``cache_dir`` is looked at, and where jobs run (its startup kit), if known.
        cache, state: bytes of all prepared cases and of what a job keeps; what is in the cache counts as free.
    """
    remedies = {"cache": f"made or written; correct key 'cache_dir' in {site.source}"}
    places = [("cache", site.cache_dir, cache, _stored(site.cache_dir))]
    places += [("workspace", workspace, state, 0)] if workspace else []
    spaces, findings = [], []
    for what, folder, needed, held in places:
        nearest = nearest_folder(folder)
        spaces.append(Space(what, folder, needed, shutil.disk_usage(nearest).free, held))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            remedy = remedies.get(what, "written; correct its permissions")
            findings.append(SiteFinding("disk", what, f"the {what} folder {folder} cannot be {remedy}"))
    return spaces, [*findings, *_permissions(site.cache_dir / FOLDER), *_room(spaces)]


def nearest_folder(folder: Path) -> Path:
    """The folder itself or the first parent that exists."""
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _stored(cache_dir: Path) -> int:
    try:
        return sum(prepared_sizes(cache_dir))
    except OSError:
        return 0


def _permissions(folder: Path) -> Iterator[SiteFinding]:
    if not folder.is_dir():
        return
    facts = folder.stat()
    if stat.S_IMODE(facts.st_mode) & 0o077:
        if facts.st_uid == os.geteuid():
            yield SiteFinding("disk", "open_cache", f"{folder} can be read by others; close it now: chmod 700 {folder}")
        else:
            text = f"{folder} belongs to another user and can be read by others; choose another cache_dir"
            yield SiteFinding("disk", "cache", text)


def _room(spaces: Sequence[Space]) -> Iterator[SiteFinding]:
    disks: dict[int, list[Space]] = defaultdict(list)
    for space in spaces:
        disks[nearest_folder(space.folder).stat().st_dev].append(space)
    for sharing in disks.values():
        needed, held = sum(space.needed for space in sharing), sum(space.held for space in sharing)
        free = sharing[0].free
        names = " and ".join(f"{space.what} ({space.folder})" for space in sharing)
        text = f"{names} will need about {size(needed)}, and {size(free)} are free"
        text += f" beside {size(held)} of prepared cases, which scripts/purge_cache.py deletes" if held else ""
        if free + held < needed:
            yield SiteFinding("disk", "no_space", f"{text}; free some space or name another disk")
        elif free + held < COMFORT * needed:
            yield SiteFinding("disk", "little_space", f"{text}; other programs may need that too")
