"""Find an installed bundle by name, and tell whether two installations are the same."""

import hashlib
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from fedmed.errors import BundleError
from fedmed.files import SHIPPED, folders_of

PACKAGE = Path(__file__).resolve().parents[1]
SHARED_OVERLAYS = {  # name -> file, of those that every bundle can use: they lie beside the system that they are of
    path.stem: path for room in ("overlays", "systems") for path in sorted((PACKAGE / room).rglob("*.yaml"))
}
SHIPPED_BUNDLES = SHIPPED / "bundles"
_NAME = re.compile(r"[A-Za-z0-9_]+")


def check_name(name: str, what: str) -> str:
    """Return ``name`` if it is a plain name; a job must not reach other folders through it.

    Raises:
        BundleError: anything but letters, digits and underscores.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BundleError(f"{what} {name!r} is not a plain name (letters, digits, underscore)")
    return name


def find_bundle(name: str, site_bundles: Path | None = None) -> Path:
    """Return a bundle's root: the site's folder, ``$FEDMED_HOME/bundles``, then FedMed's own.

    Raises:
        BundleError: no such bundle; names every folder looked at, and the bundle that may be meant.
    """
    check_name(name, "bundle")
    folders = [site_bundles] if site_bundles else []
    folders += [*folders_of("bundles", "FEDMED_BUNDLES"), SHIPPED_BUNDLES]
    for folder in folders:
        if (folder / name / "configs" / "metadata.json").is_file():
            return (folder / name).resolve()
    looked = ", ".join(str(folder) for folder in folders)
    there = sorted({path.parents[1].name for folder in folders for path in folder.glob("*/configs/metadata.json")})
    near = get_close_matches(name, there, 1)
    meant = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(there) or 'none'}"
    raise BundleError(f"bundle '{name}' not found. Looked in: {looked}. Install it there{meant}")


def bundle_digest(root: Path, shared: Mapping[str, Path] | None = None) -> str:
    """SHA-256 of a bundle's configs and Python files, which say what it does; not of weights and documents."""
    files = [p for p in sorted(root.rglob("*")) if p.is_file() and _defines_behaviour(p.relative_to(root))]
    named = [(path.relative_to(root).as_posix(), path) for path in files]
    named += [(f"fedmed/overlays/{path.name}", path) for _, path in sorted((shared or {}).items())]
    digest = hashlib.sha256()
    for name, path in named:
        digest.update(name.encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def package_digest() -> str:
    """SHA-256 of FedMed's own Python files and overlays: of the code that makes a result."""
    return bundle_digest(PACKAGE, SHARED_OVERLAYS)


def _defines_behaviour(path: Path) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    return not hidden and (path.parts[0] == "configs" or path.suffix == ".py")
