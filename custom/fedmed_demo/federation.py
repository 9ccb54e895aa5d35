"""Make a demo site on disk: once, completely or not at all, even when two processes ask for it at the same time."""

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from fedmed.errors import DataError
from fedmed.files import fedmed_home
from fedmed_demo import chest_ct, hospitals
from fedmed_demo.hospitals import SiteProfile
from fedmed_demo.surgery import profile as surgery
from fedmed_demo.xray import chest_xray, institution_files, institutions
from fedmed_demo.xray.institutions import Institution

log = logging.getLogger("fedmed.demo")

LAP_TOOLS, LAP_PHASES, LAP_INSTRUMENTS = (
    surgery.read_profiles(surgery.FOLDER / f"{name}.yaml") for name in ("lap_tools", "lap_phases", "lap_instruments")
)
LAP_INSTRUMENTS_TINY = {n: site.tiny(rate=5, mask_every=1, seconds=(5, 6)) for n, site in LAP_INSTRUMENTS.items()}

Profile = SiteProfile | Institution | surgery.HospitalProfile
KINDS: Mapping[str, Mapping[str, Profile]] = {
    "chest_ct": hospitals.SITES,
    "chest_ct_tiny": {name: hospitals.tiny(site) for name, site in hospitals.SITES.items()},
    "chest_ct_coarse": hospitals.COARSE_SITES,
    "chest_xray": institutions.with_halves(institutions.SITES),
    "chest_xray_tiny": institutions.with_halves({n: institutions.tiny(s) for n, s in institutions.SITES.items()}),
    "chest_xray_large": institutions.LARGE_SITES,
    "chest_xray_tested": institutions.TESTED_SITES,
    "lap_tools": LAP_TOOLS,
    "lap_tools_tiny": {name: site.tiny() for name, site in LAP_TOOLS.items()},
    "lap_phases": LAP_PHASES,
    "lap_phases_tiny": {name: site.tiny() for name, site in LAP_PHASES.items()},
    "lap_instruments": LAP_INSTRUMENTS,
    "lap_instruments_tiny": LAP_INSTRUMENTS_TINY,
}
VERSIONS = {  # of kinds with a version of their own
    "chest_ct": chest_ct.DEMO_VERSION,
    "chest_ct_coarse": chest_ct.COARSE_VERSION,
    "chest_xray": chest_xray.VERSION,
    "chest_xray_tiny": chest_xray.VERSION,
    **dict.fromkeys(("chest_xray_large", "chest_xray_tested"), chest_xray.LARGE_VERSION),
    **dict.fromkeys(("lap_tools", "lap_tools_tiny", "lap_phases", "lap_phases_tiny"), surgery.VERSION),
    **dict.fromkeys(("lap_instruments", "lap_instruments_tiny"), surgery.INSTRUMENTS_VERSION),
}
THREADS = 2


def demo_site(kind: str, site: str, root: Path | str | None = None, seed: int = 0) -> Path:
    """Return the data root of one demo site, made by the first call (seconds) and reused by later ones.

    Args:
        kind: "chest_ct", "chest_ct_tiny" (about 64 x 56 x 16 voxels, three patients a list), "chest_ct_coarse"
            (the sites of the paper's tables, about 64 x 50 x 32 voxels), "chest_xray" (about 256 x 256 pixels),
            "chest_xray_tiny" (about 64 x 64 pixels, about 24 images a site), "chest_xray_large" (about 256 x 256
            pixels, 640 patients a site; for comparisons of pre-trained encoders), "chest_xray_tested" (the demo's
            lists of other patients, 320 of them to test on), "lap_tools" (videos of operations, 256 x 192 pixels, 70
            to 90 seconds), "lap_tools_tiny" (64 x 48 pixels, a video of some seconds a list),
            "lap_phases" (videos with phases, about 128 x 96 pixels, 64 to 140 seconds), "lap_phases_tiny",
            "lap_instruments" (videos with masks of the parts of instruments, about 160 x 128 pixels, 20 seconds) or
            "lap_instruments_tiny".
        site: a name in ``KINDS[kind]``.
        root: where demo data live; default ``$FEDMED_HOME``, else ``~/.cache/fedmed``.
        seed: another seed makes other patients.

    Returns:
        ``<root>/demo/<kind>-v<version>-seed<seed>/<site>``, which holds ``datalist.json``, ``images`` and, of CT,
        ``labels``; or ``videos``, ``labels`` and ``masks``, and ``datalist_labelled.json``.
        Sites that are halves of an institution get its folder, which has a datalist for each half too.

    Raises:
        DataError: for an unknown kind or site, or when the folder cannot be written.
    """
    if kind not in KINDS:
        raise DataError(f"demo kind '{kind}' is unknown; use one of {', '.join(KINDS)}")
    if site not in KINDS[kind]:
        raise DataError(f"demo kind '{kind}' has no site '{site}'; use one of {', '.join(KINDS[kind])}")
    profile = KINDS[kind][site]
    home = Path(root or fedmed_home()).expanduser()
    folder = home / "demo" / f"{kind}-v{VERSIONS.get(kind, chest_ct.VERSION)}-seed{seed}"
    final = folder / profile.name
    if (final / "datalist.json").is_file():
        return final
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{profile.name}.lock"):
            if not (final / "datalist.json").is_file():
                patients = sum(profile.counts.values()) + getattr(profile, "tested", 0)
                log.info("making the demo site %s, %d patients, in %s; this happens once", site, patients, final)
                _make(profile, final, seed)
    except OSError as error:
        raise DataError(
            f"demo site '{site}' cannot be written to {folder}: {error}; free some space, or point FEDMED_HOME to a "
            "folder that can be written"
        ) from error
    return final


def _make(profile: Profile, final: Path, seed: int) -> None:
    """Fill a temporary neighbour of ``final`` and rename it; the caller holds the site's lock."""
    # A killed process cannot clean up after itself; the lock guarantees that no other process works here.
    for remains in final.parent.glob(f".{profile.name}.making-*"):
        shutil.rmtree(remains, ignore_errors=True)
    if final.exists():
        shutil.rmtree(final)
    making = Path(tempfile.mkdtemp(prefix=f".{profile.name}.making-", dir=final.parent))
    try:
        threads = min(THREADS, os.cpu_count() or 1)
        if isinstance(profile, Institution):
            institution_files.fill(profile, making, seed, threads)
        elif isinstance(profile, surgery.HospitalProfile):
            from fedmed_demo.surgery import recording_files  # OpenCV, which others do not need

            recording_files.fill(profile, making, seed, threads)
        else:
            chest_ct.fill(profile, making, seed, threads)
        making.chmod(0o755)
        making.rename(final)
    finally:
        shutil.rmtree(making, ignore_errors=True)
