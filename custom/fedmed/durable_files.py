"""Files that must be whole or absent, and as they were written: models, states, prepared cases, and JSON lines.

An archive of ``torch.save`` is a ZIP file, which PyTorch reads without looking at its checksums. Ours ends in a
comment, which every reader of ZIP files passes over: the SHA-256 of all that stands before it. Of plain values the
digest is one of them. Both are checked before anything is made of the content; they tell of damage, not of an attack.
"""

import hashlib
import json
import logging
import os
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fedmed.errors import StateError
from fedmed.files import write_atomically

log = logging.getLogger("fedmed.files")
COMMENT = b"fedmed-sha256:"  # and 64 hexadecimal digits
COMMENT_SIZE = len(COMMENT) + 64
DIGEST = "sha256"  # of plain values
CHUNK = 2**20
REMEDY = "restore it from a backup, or start again without it"


def save_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file durably, whole or not at all.

    Raises:
        StateError: the disk is full or the folder cannot be written; an older file stays as it was.
    """
    try:
        write_atomically(path, write, durable=True)
    except OSError as error:
        raise StateError(
            f"cannot write {path}: {error}. Free space or correct its permissions; nothing was changed"
        ) from error


def save_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """Save tensors and plain values with ``torch.save`` and their digest, atomically."""
    save_file(path, lambda stream: write_tensors(stream, content))


def write_tensors(stream: BinaryIO, content: Mapping[str, Any]) -> None:
    """Write what ``torch.save`` makes of tensors and plain values, and its digest."""
    hashed = _Hashed(stream)
    torch.save(dict(content), hashed)  # type: ignore[arg-type]  # it needs write and flush alone
    comment = COMMENT + hashed.digest.hexdigest().encode()
    stream.seek(-2, os.SEEK_END)  # the length of the comment, which is 0 until now
    stream.write(len(comment).to_bytes(2, "little") + comment)


def check_digest(path: Path) -> bool:
    """Tell whether a file carries its digest: False for one of another program, or of a FedMed that wrote none.

    The checksums of such a file are looked at where it is an archive; they are 32 bits each.

    Raises:
        StateError: it is not as it was written.
        OSError: it cannot be read.
    """
    if (written := _written(path)) is None:
        _check_archive(path)
        return False
    digest, left = hashlib.sha256(), path.stat().st_size - COMMENT_SIZE - 2
    with path.open("rb") as stream:
        while left > 0 and (part := stream.read(min(CHUNK, left))):
            digest.update(part)
            left -= len(part)
    digest.update(b"\0\0")  # the comment's length when the digest was made
    if digest.hexdigest().encode() != written:
        raise StateError(f"{path} is damaged: its content is not what was written (SHA-256); {REMEDY}")
    return True


def _written(path: Path) -> bytes | None:
    with path.open("rb") as stream:
        if stream.seek(0, os.SEEK_END) < COMMENT_SIZE:
            return None
        stream.seek(-COMMENT_SIZE, os.SEEK_END)
        comment = stream.read()
    return comment.removeprefix(COMMENT) if comment.startswith(COMMENT) else None


def _check_archive(path: Path) -> None:
    if not zipfile.is_zipfile(path):  # an older form of PyTorch, or of another program; reading it tells
        return
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise StateError(f"{path} is damaged ({error}); {REMEDY}") from error
    if bad is not None:
        raise StateError(f"{path} is damaged: the checksum of '{bad}' in it is wrong; {REMEDY}")


class _Hashed:
    """A stream that knows the digest of what was written to it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.digest = stream, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self.stream.write(content)

    def flush(self) -> None:
        self.stream.flush()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values with their own digest among them."""
    return {**content, DIGEST: _digest(content)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values without their digest, which is checked; a FedMed before this one wrote none.

    Raises:
        ValueError: they are not as they were written.
    """
    values = {key: value for key, value in content.items() if key != DIGEST}
    if DIGEST in content and content[DIGEST] != _digest(values):
        raise ValueError("its content is not what was written (SHA-256)")
    return values


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def load_tensors(path: Path) -> dict[str, Any]:
    """Load what :func:`save_tensors` wrote, or a file of tensors that carries no digest; nothing in it is executed.

    Raises:
        StateError: no such file, or a damaged one.
    """
    try:
        if not check_digest(path):
            log.info("%s carries no digest: it was written by another program, or by an earlier FedMed", path)
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return content
    except FileNotFoundError as error:
        raise StateError(f"{path} does not exist") from error
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise StateError(f"{path} is damaged ({error}); {REMEDY}") from error


def save_json(path: Path, content: Any) -> None:
    """Save plain values as readable JSON, atomically."""
    save_file(path, lambda stream: stream.write(json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"))


def save_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Save plain values as JSON lines, atomically."""
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    save_file(path, lambda stream: stream.write(text.encode()))


def link(source: Path, path: Path) -> bool:
    """Give a complete file a second name, which takes no time and no space; False where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, path)
    except OSError:
        return False
    return True


def append_json(path: Path, content: Mapping[str, Any], durable: bool = False) -> None:
    """Add one JSON line in one call, so that a reader never sees half of it; ``durable``: wait until it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(content, allow_nan=False) + "\n")
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
