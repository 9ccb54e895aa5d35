"""The exported folder: made beside its place and renamed at the end, so that nobody ever sees half of it."""

import contextlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from fedmed.errors import ExportError

CONFIGS, MODELS, DOCS = "configs", "models", "docs"
METADATA = "metadata.json"
KINDS = ("_segmentation", "_classification")  # MONAI Label tells the task by the folder's name


def check_target(out: Path, replace: bool) -> None:
    """Refuse a place that cannot become a bundle.

    Raises:
        ExportError: a name without the task, something that exists, or something else than an exported bundle there.
    """
    if not out.name.endswith(KINDS) or not re.fullmatch(r"[A-Za-z0-9_]+", out.name):
        letters = re.sub(r"\W+", "_", out.name, flags=re.ASCII).strip("_") or "my_model"
        names = " or ".join(str(out.with_name(letters.removesuffix(kind) + kind)) for kind in KINDS)
        raise ExportError(
            f"MONAI Label reads the task from the name of the bundle's folder, which must end in {' or '.join(KINDS)} "
            f"and have only letters a–z, digits and underscores; in place of '{out.name}' write {names}"
        )
    if not out.exists() and not out.is_symlink():
        return
    if not replace:
        raise ExportError(f"{out} exists; choose another folder or use --replace")
    if not is_exported(out):
        raise ExportError(f"{out} is not an exported bundle and is not replaced; choose another folder")


def check_apart(out: Path, base: Path) -> None:
    """Refuse to write into the bundle that a run trained: it would not be the run's any more."""
    if out.resolve().is_relative_to(base):
        raise ExportError(f"{out} lies in the bundle that the run trained, {base}; choose another folder")


def is_exported(folder: Path) -> bool:
    """True for a folder that an export made."""
    try:
        return "federation" in json.loads((folder / CONFIGS / METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Give an empty folder of the same name beside ``out``; put it in its place when the block ends well.

    Raises:
        ExportError: the disk is full, or the folder cannot be written.
    """
    missing = [folder for folder in out.parents if not folder.exists()]
    making = out.parent / f".{out.name}.making-{uuid.uuid4().hex[:8]}"
    before = making / "before"
    try:
        (making / out.name).mkdir(parents=True)
        yield making / out.name
        if out.exists():
            out.rename(before)
        (making / out.name).rename(out)
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error}; free space or choose another folder") from error
    finally:
        if before.exists() and not out.exists():
            before.rename(out)
        shutil.rmtree(making, ignore_errors=True)
        for folder in missing:  # upwards; one that is in use now stays
            with contextlib.suppress(OSError):
                folder.rmdir()


def copy_parts(root: Path, target: Path) -> None:
    """Copy what makes a bundle: licence, documents, configs and its own package. Never data, results or weights."""
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        top, hidden = place.parts[0], any(part.startswith(".") or part == "__pycache__" for part in place.parts)
        belongs = place == Path("LICENSE") or top in (CONFIGS, DOCS) or (root / top / "__init__.py").is_file()
        if path.is_file() and belongs and not hidden:
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / place)
