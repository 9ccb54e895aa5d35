"""What the files of an exported bundle were when it was exported: ``digests.json``, a SHA-256 for each of them.

They tell of damage and of changes, and give a bundle one number by which a person can name it. They do not say who made
it: whoever changes a file can write the digests anew.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmed.errors import BundleError

DIGESTS, SIGNATURE = "digests.json", "digests.signature.json"
FORMAT = 1
NOT_PART = {"eval", "data"}  # where a bundle's own commands read images and write results by default


def write_digests(root: Path, made_of: Mapping[str, Any]) -> None:
    """Write the digests of all files of a bundle.

    Args:
        root: the bundle's folder.
        made_of: ``bundle``, the name of the one whose configurations it holds, and ``overlays`` that are merged in.
    """
    content = {"format": FORMAT, "made_of": dict(made_of), "files": dict(file_digests(root))}
    (root / DIGESTS).write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")


def read_digests(root: Path) -> dict[str, Any] | None:
    """Content of ``digests.json``; None where there is none, as in bundles of others and of an earlier FedMed.

    Raises:
        BundleError: it is damaged.
    """
    path = root / DIGESTS
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sound = content["format"] == FORMAT and isinstance(content["made_of"], dict)
        if not sound or not all(isinstance(text, str) for item in content["files"].items() for text in item):
            raise ValueError("it does not hold what an export writes")
        return dict(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(f"{path} cannot be read ({error}); export the bundle again") from error


def changed_files(root: Path, needed: Collection[str] = ()) -> list[str]:
    """Files that are not as they were exported, that are missing, or that are needed and not listed.

    Args:
        root: the bundle's folder.
        needed: paths in it that are about to be used.

    Raises:
        BundleError: ``digests.json`` is damaged.
    """
    if (content := read_digests(root)) is None:
        return []
    listed = content["files"]
    found = [name for name, digest in listed.items() if not _is(root / name, digest)]
    return sorted({*found, *(name for name in needed if name not in listed)})


def check_file(root: Path, name: str) -> None:
    """Look at one file of a bundle before it is used.

    Raises:
        BundleError: it is not as it was exported.
    """
    content = read_digests(root)
    if content is not None and not _is(root / name, content["files"].get(name, "")):
        raise BundleError(f"{root / name} is not as it was exported (SHA-256); export the bundle again")


def bundle_files(root: Path) -> Iterator[Path]:
    """All files of a bundle, in a fixed order; not what is hidden, what Python compiled, nor data and results in it."""
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in place.parts)
        if path.is_file() and not hidden and place.parts[0] not in NOT_PART:
            yield path


def file_digests(root: Path) -> Iterator[tuple[str, str]]:
    """(path in the bundle, SHA-256) of all its files but the list of digests itself and its signature."""
    for path in bundle_files(root):
        if (name := path.relative_to(root).as_posix()) not in (DIGESTS, SIGNATURE):
            yield name, _sha256(path)


def whole_digest(root: Path) -> str:
    """One SHA-256 of the names and contents of all files of a bundle: by it a person says which one is trusted."""
    digest = hashlib.sha256()
    for path in bundle_files(root):
        digest.update(f"{path.relative_to(root).as_posix()}\0{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and _sha256(path) == digest


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
