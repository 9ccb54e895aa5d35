"""Write a site folder completely or not at all: work next to it, then rename. Other files are never touched."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmed.errors import DataError
from fedmed.files import close_tree

DATALIST = "datalist.json"
REPORT = "prepare_report"
PREPARED = "prepared"  # images that were converted, linked or copied


@contextmanager
def staging_for(out: Path) -> Iterator[Path]:
    """Give a new folder next to ``out`` that is removed at the end, whatever happens.

    DataError if ``out`` is a file, holds a datalist that no preparation wrote, or cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; --out names a folder")
    if (out / DATALIST).exists() and not (out / f"{REPORT}.csv").exists():
        raise DataError(f"{out / DATALIST} was not written by a preparation; choose another --out or move it away")
    staging = out.parent / f".{out.name}.preparing-{os.getpid()}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)  # what is in it may come from elsewhere with other modes, and is closed at the end
    except OSError as error:
        raise DataError(f"cannot write into {out.parent} ({error}); choose another --out") from error
    try:
        yield staging
    except OSError as error:
        raise DataError(f"writing {out} failed ({error}); free some space or choose another --out") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def publish(staging: Path, out: Path) -> None:
    """Turn ``staging`` into ``out``. In a folder that exists, only what a preparation writes is replaced.

    A site YAML that a person has changed is kept next to the new one, with ``.before`` after its name. New files may be
    read by its owner only, or by the group too: see :func:`fedmed.files.private_files`.
    """
    close_tree(staging)
    if not out.exists():
        staging.rename(out)
        return
    old = staging.with_name(staging.name + "-old")
    shutil.rmtree(old, ignore_errors=True)
    if (out / PREPARED).exists() and (out / f"{REPORT}.csv").exists():
        (out / PREPARED).rename(old)
    for path in sorted(staging.iterdir()):
        target = out / path.name
        if path.suffix == ".yaml" and target.exists() and target.read_bytes() != path.read_bytes():
            os.replace(target, target.with_name(target.name + ".before"))
        os.replace(path, target)
    shutil.rmtree(old, ignore_errors=True)


def link_or_copy(path: Path, target: Path) -> Path:
    """Bring a file into a site folder, as a hard link if possible; return ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except OSError:  # another disk, or a file system without links
        shutil.copy2(path, target)
    return target
