"""Make a demo site on disk: once, completely or not at all, even when two processes ask for it at the same time."""

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from fedmed.data.synthetic import chest_ct, coarse
from fedmed.data.synthetic.chest_ct import SiteProfile
from fedmed.data.synthetic.xray import chest_xray, large
from fedmed.data.synthetic.xray import site as xray_site
from fedmed.data.synthetic.xray.chest_xray import Institution
from fedmed.errors import DataError
from fedmed.files import fedmed_home

log = logging.getLogger("fedmed.demo")

Profile = SiteProfile | Institution
KINDS: Mapping[str, Mapping[str, Profile]] = {
    "chest_ct": chest_ct.SITES,
    "chest_ct_tiny": {name: chest_ct.tiny(profile) for name, profile in chest_ct.SITES.items()},
    "chest_ct_coarse": coarse.SITES,
    "chest_xray": xray_site.with_halves(chest_xray.SITES),
    "chest_xray_tiny": xray_site.with_halves({name: chest_xray.tiny(s) for name, s in chest_xray.SITES.items()}),
    "chest_xray_large": large.SITES,
}
VERSIONS = {  # of kinds with a version of their own
    "chest_ct_coarse": coarse.VERSION,
    "chest_xray": chest_xray.VERSION,
    "chest_xray_tiny": chest_xray.VERSION,
    "chest_xray_large": large.VERSION,
}
THREADS = 2


def demo_site(kind: str, site: str, root: Path | str | None = None, seed: int = 0) -> Path:
    """Return the data root of one demo site, made by the first call (seconds) and reused by later ones.

    Args:
        kind: "chest_ct", "chest_ct_tiny" (about 64 x 56 x 16 voxels, three patients a list), "chest_ct_coarse"
            (the sites of the paper's tables, about 64 x 50 x 32 voxels), "chest_xray" (about 256 x 256 pixels),
            "chest_xray_tiny" (about 64 x 64 pixels, about 24 images a site) or "chest_xray_large" (about 256 x 256
            pixels, 640 patients a site; the tables of FedMoCo).
        site: a name in ``KINDS[kind]``.
        root: where demo data live; default ``$FEDMED_HOME``, else ``~/.cache/fedmed``.
        seed: another seed makes other patients.

    Returns:
        ``<root>/demo/<kind>-v<version>-seed<seed>/<site>``, which holds ``datalist.json``, ``images`` and, of CT,
        ``labels``. Sites that are halves of an institution get its folder, which has a datalist for each half too.

    Raises:
        DataError: for an unknown kind or site, or when the folder cannot be written.
    """
    profile = _profile(kind, site)
    folder = demo_home(root) / f"{kind}-v{VERSIONS.get(kind, chest_ct.VERSION)}-seed{seed}"
    final = folder / profile.name
    if (final / "datalist.json").is_file():
        return final
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{profile.name}.lock"):
            if not (final / "datalist.json").is_file():
                patients = sum(profile.counts.values())
                log.info("making the demo site %s, %d patients, in %s; this happens once", site, patients, final)
                _make(profile, final, seed)
    except OSError as error:
        raise DataError(
            f"demo site '{site}' cannot be written to {folder}: {error}; free some space, or point FEDMED_HOME to a "
            "folder that can be written"
        ) from error
    return final


def demo_home(root: Path | str | None = None) -> Path:
    """The folder of all demo data: ``<root>/demo`` with the defaults of :func:`demo_site`."""
    home = root or fedmed_home()
    return Path(home).expanduser() / "demo"


def _profile(kind: str, site: str) -> Profile:
    if kind not in KINDS:
        raise DataError(f"demo kind '{kind}' is unknown; use one of {', '.join(KINDS)}")
    if site not in KINDS[kind]:
        raise DataError(f"demo kind '{kind}' has no site '{site}'; use one of {', '.join(KINDS[kind])}")
    return KINDS[kind][site]


def _make(profile: Profile, final: Path, seed: int) -> None:
    """Fill a temporary neighbour of ``final`` and rename it; the caller holds the site's lock."""
    # A killed process cannot clean up after itself; the lock guarantees that no other process works here.
    for remains in final.parent.glob(f".{profile.name}.making-*"):
        shutil.rmtree(remains, ignore_errors=True)
    if final.exists():
        shutil.rmtree(final)
    making = Path(tempfile.mkdtemp(prefix=f".{profile.name}.making-", dir=final.parent))
    try:
        if isinstance(profile, Institution):
            xray_site.fill(profile, making, seed, min(THREADS, os.cpu_count() or 1))
        else:
            _fill(profile, making, seed)
        making.chmod(0o755)
        making.rename(final)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _fill(profile: SiteProfile, folder: Path, seed: int) -> None:
    """Write all patients and, last, the datalist."""
    lists = [name for name, count in profile.counts.items() for _ in range(count)]
    patients = [f"{profile.prefix}-{number:04d}" for number in range(1, len(lists) + 1)]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        # An error cancels those that have not begun.
        entries = list(pool.map(lambda *who: chest_ct.write_patient(profile, *who, folder, seed), lists, patients))
    datalist = {name: [] for name in profile.counts}
    for name, entry in zip(lists, entries, strict=True):
        datalist[name].append(entry)
    (folder / "datalist.json").write_text(json.dumps(datalist, indent=2) + "\n")
