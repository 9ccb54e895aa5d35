"""Masks are looked at before training, each once: what is wrong with one is told before the first round."""

import hashlib
import logging
from collections.abc import Collection
from pathlib import Path

from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.stored_video import StoredVideo
from fedmed.errors import DataError
from fedmed.files import write_atomically

log = logging.getLogger("fedmed.data")

SUFFIX = ".masks"


def check_masks(masks: FrameMasks, files: Collection[Path], video: StoredVideo) -> None:
    """Read masks of a prepared video, and note beside its frames that they are right, so that it happens once.

    The note holds for these files, their sizes and times of change: another mask is read with all the others.

    Raises:
        DataError: see :meth:`fedmed.data.video.frame_masks.FrameMasks.check`.
    """
    note = video.path.with_name(f"{_digest(masks, files, video)}{SUFFIX}")
    if note.is_file():
        return
    for path in files:
        masks.check(path, video)
    try:
        write_atomically(note, lambda stream: stream.write(b""))
    except OSError as error:
        log.warning("%s cannot be written (%s); the masks are looked at each time", note, error)


def _digest(masks: FrameMasks, files: Collection[Path], video: StoredVideo) -> str:
    digest = hashlib.sha256(f"{sorted(masks.values)} {video.facts['source_sizes']}".encode())
    for path in sorted(files):
        try:
            facts = path.stat()
        except OSError as error:
            raise DataError(f"{path}: the mask cannot be read ({error.strerror}); restore it") from error
        known = f"\0{path.absolute()}\0{facts.st_size} {facts.st_mtime_ns}"
        digest.update(known.encode(errors="surrogateescape"))
    return digest.hexdigest()
