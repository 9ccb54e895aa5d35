"""Places of FedMed's own files, and functions that write them: whole or not at all, and for their owner."""

import errno
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedmed.errors import FedMedError

RESUME_ROOT = "FEDMED_RESUME_ROOT"  # only 'fedmed simulate' sets it: NVFlare deletes a workspace at every start
SHARED_ROUNDS = "FEDMED_SHARED_ROUNDS"  # set by 'fedmed simulate' alone, for a job and its control
MODELS = "FEDMED_MODELS"  # another folder of checkpoints, for a single run
SITES = "FEDMED_SITE_CONFIGS"  # other folders of YAMLs, for a single run
GROUP = "FEDMED_GROUP_READABLE"  # 1: the group of a new file or folder may read it too
# What of our variables names files or folders, some of them several.
PLACES = ("FEDMED_HOME", "FEDMED_DATA", "FEDMED_BUNDLES", MODELS, "FEDMED_SERVER_CONFIG", SITES)
CACHE_FOLDER = "fedmed-cases"
PREPARED = (".pt", ".frames")  # files of prepared cases and videos
_CACHE_FILE = re.compile(r"[0-9a-f]{64}\.(pt|frames|features|json|source|masks|lock|[^.]+\.tmp)")
CHECKOUT = Path(__file__).resolve().parents[2]
_IN_WHEEL = Path(__file__).resolve().parent / "shipped"
# Holds bundles/, studies/ and site_configs/, which setup.py puts into the wheel.
SHIPPED = _IN_WHEEL if _IN_WHEEL.is_dir() else CHECKOUT


def fedmed_home() -> Path:
    """The folder of what this machine's user gives to FedMed and of what it keeps: ``$FEDMED_HOME``.

    By default ``~/.cache/fedmed``. Users put YAMLs of sites into ``sites/``, checkpoints into ``models/``, bundles into
    ``bundles/``; FedMed keeps its caches, accounts, checks and demo data there.
    """
    return Path(os.environ.get("FEDMED_HOME") or "~/.cache/fedmed").expanduser()


def folders_of(what: str, variable: str) -> list[Path]:
    """Folders of what users give: ``$FEDMED_HOME/<what>``, after the folders in a variable of a single run."""
    named = [Path(folder).expanduser() for folder in os.environ.get(variable, "").split(os.pathsep) if folder]
    return [*named, fedmed_home() / what]


def data_root(default: str) -> Path:
    """The folder of images for comparisons: ``$FEDMED_HOME/data``, or ``default``, relative to the checkout."""
    if given := os.environ.get("FEDMED_DATA"):
        return Path(given).expanduser()
    home = fedmed_home() / "data"
    return home if home.is_dir() else CHECKOUT / default


def absolute_places() -> dict[str, str]:
    """Our variables that name places, with absolute paths: NVFlare's processes work in folders of their own."""
    given = {name: os.environ[name].split(os.pathsep) for name in PLACES if os.environ.get(name)}
    made = {name: [str(Path(place).expanduser().absolute()) for place in v if place] for name, v in given.items()}
    return {name: os.pathsep.join(places) for name, places in made.items()}


def _closed_to() -> int:
    """Bits of a mode that new files and folders do not get."""
    return 0o027 if os.environ.get(GROUP) == "1" else 0o077


@contextmanager
def private_files() -> Iterator[None]:
    """Let only their owner read what is written meanwhile: files get mode 600, folders 700.

    With ``$FEDMED_GROUP_READABLE=1`` it is 640 and 750. For a whole command, since the mask is that of the process and
    of those that it starts; also as a decorator.
    """
    before = os.umask(_closed_to())
    try:
        yield
    finally:
        os.umask(before)


def close_tree(folder: Path) -> None:
    """Give a folder and everything in it the modes of :func:`private_files`.

    Links, and files that have another name elsewhere (hard links), are left as they are: their modes are not ours.
    """
    for place, _, names in os.walk(folder):
        os.chmod(place, 0o777 & ~_closed_to())
        for path in (Path(place, name) for name in names):
            if not path.is_symlink() and path.stat().st_nlink == 1:
                path.chmod(0o666 & ~_closed_to())


def read_json(path: Path, error: type[FedMedError], remedy: str = "") -> dict[str, Any]:
    """Read a JSON file that holds named values.

    Raises:
        FedMedError: of the type ``error``: not readable, or something else; it names the file and ends with ``remedy``,
            if there is one.
    """
    end = f"; {remedy}" if remedy else ""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{path}: not a readable JSON file ({problem}){end}") from problem
    if not isinstance(content, dict):
        raise error(f"{path}: holds a {type(content).__name__} instead of named values{end}")
    return content


def write_atomically(path: Path, write: Callable[[BinaryIO], object], durable: bool = False) -> None:
    """Write a file so that a reader, a second writer or a crash never meets half of it; only its owner may read it.

    Args:
        path: the file; its folder is made if necessary.
        write: called with the open temporary file, ``<stem>.<random>.tmp`` beside ``path``.
        durable: wait until the content is on the disk.

    Raises:
        OSError: the disk is full or the folder cannot be written; an older file stays, nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".tmp")
    try:
        os.chmod(temporary, 0o666 & ~_closed_to())
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except RuntimeError as error:  # what torch.save makes of a full disk
        Path(temporary).unlink(missing_ok=True)
        raise OSError(errno.ENOSPC, f"cannot be written: {error}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def default_cache_dir() -> str:
    """The cache folder of a site whose settings name none: ``$FEDMED_HOME/cache`` or ``~/.cache/fedmed/cache``."""
    return str(fedmed_home() / "cache")


def prepared_sizes(cache_dir: Path) -> list[int]:
    """Bytes of each case and video that is prepared there.

    Raises:
        OSError: the folder cannot be read.
    """
    return [path.stat().st_size for path in (cache_dir / CACHE_FOLDER).iterdir() if path.suffix in PREPARED]


def purge(cache_dir: Path | str) -> int:
    """Delete each preprocessed case and video and all features below ``cache_dir``, nothing else; return how many."""
    folder = Path(cache_dir).expanduser() / CACHE_FOLDER
    files = [path for path in folder.glob("*") if _CACHE_FILE.fullmatch(path.name) and path.is_file()]
    for path in files:
        path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return len(files)
