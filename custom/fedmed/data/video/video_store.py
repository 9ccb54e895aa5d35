"""Prepared videos on disk: one memory map each, made once, whole or not at all."""

import hashlib
import json
import logging
import re
from pathlib import Path
from typing import BinaryIO

import numpy as np
from filelock import FileLock

from fedmed.data.cache import CaseStore, check_once
from fedmed.data.video.file_source import open_video
from fedmed.data.video.folder_source import folder_facts
from fedmed.data.video.frame_settings import FrameSettings, frame_grid
from fedmed.data.video.stored_video import Extraction, StoredVideo, space_needed
from fedmed.durable_files import sealed, unsealed
from fedmed.errors import DataError
from fedmed.files import read_json, write_atomically

log = logging.getLogger("fedmed.data")

_NOTE = re.compile(r"(?P<digest>[0-9a-f]{64})( (?P<rate>\d+\.\d+))?")
DAMAGE_FACTS = ("damaged", "times_back", "cut_short")
FRAMES_DIGEST = "frames_sha256"


class VideoStore:
    """Videos prepared with the same settings, in the cache folder of prepared cases.

    A video is known by its content: a moved or renamed file is not prepared again, a changed one is. Processes that
    want the same video wait for the one that makes it.

    Args:
        cache_dir: of the site; see :class:`fedmed.data.cache.CaseStore`.
        settings: size, rate, and what is cut off or dropped.

    Raises:
        DataError: the folder cannot be made.
    """

    def __init__(self, cache_dir: Path | str, settings: FrameSettings) -> None:
        self.folder, self.settings = CaseStore(cache_dir).folder, settings

    def get(self, source: Path | str) -> StoredVideo:
        """Return a video, prepared now if it is not yet.

        Raises:
            DataError: the video cannot be used, see :class:`Extraction`, or the disk is full; nothing half-written
                stays.
        """
        source = Path(source)
        try:
            key = self._key(source)
            stored = self._read(source, key)
            if stored is None:
                with FileLock(self.folder / f"{key}.lock"):
                    stored = self._read(source, key) or self._make(source, key)
        except OSError as error:
            remedy = f"free some space ({self._needed(source)}), or name another cache_dir"
            raise DataError(f"{source}: cannot be prepared in {self.folder}: {error}; {remedy}") from error
        if self.settings.damage == "refuse" and any(stored.facts[name] for name in DAMAGE_FACTS):
            counts = ", ".join(f"{name} {int(stored.facts[name])}" for name in DAMAGE_FACTS)
            raise DataError(f"{source}: is damaged ({counts}); copy it again, or accept the loss with damage='count'")
        return stored

    def _read(self, source: Path, key: str) -> StoredVideo | None:
        path, facts_path = self.folder / f"{key}.frames", self.folder / f"{key}.json"
        if not facts_path.is_file():
            return None
        try:
            facts = unsealed(read_json(facts_path, DataError, "it will be made again"))
            if FRAMES_DIGEST in facts:  # an earlier version wrote none
                check_once(path, lambda frames: _check_frames(frames, facts[FRAMES_DIGEST]))
            if path.stat().st_size == facts["frames"] * facts["height"] * facts["width"] * 3 > 0:
                return StoredVideo(source, path, facts)
        except (DataError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s: %s", facts_path, error)
        log.warning("the prepared video %s is damaged and will be made again", path)
        return None

    def _make(self, source: Path, key: str) -> StoredVideo:
        """Prepare a video; the caller holds its lock."""
        for remains in self.folder.glob(f"{key}.*.tmp"):  # of a killed process
            remains.unlink(missing_ok=True)
        log.info("preparing %s; this happens once", source)
        extraction, digest = Extraction(source, self.settings), hashlib.sha256()

        def write(stream: BinaryIO) -> None:
            for frame in extraction:
                content = np.ascontiguousarray(frame).data
                digest.update(content)
                stream.write(content)

        path = self.folder / f"{key}.frames"
        write_atomically(path, write)
        facts = {**extraction.facts(), FRAMES_DIGEST: digest.hexdigest()}
        text = json.dumps(sealed(facts))
        write_atomically(path.with_suffix(".json"), lambda stream: stream.write(text.encode()))
        return StoredVideo(source, path, facts)

    def _key(self, source: Path) -> str:
        """Key of content and settings; only where each n-th frame is taken does it say so too."""
        digest, source_rate = self._content(source)
        if source.is_dir():
            source_rate = open_video(source, self.settings.names_rate).steady_rate()
        grid = frame_grid(source_rate, self.settings.rate) if self.settings.rate else None
        every = f"\0every {grid.steps}" if grid and grid.steps else ""
        return hashlib.sha256(f"{digest}\0{self.settings.text()}{every}".encode()).hexdigest()

    def _content(self, source: Path) -> tuple[str, float | None]:
        """SHA-256 of a video's content and, of a file, its rate; remembered for its path, size and time of change."""
        try:
            facts = source.stat()
            state = folder_facts(source, False) if source.is_dir() else f"{facts.st_size} {facts.st_mtime_ns}"
            known = f"{source.absolute()}\0{state}".encode(errors="surrogateescape")
            note = self.folder / f"{hashlib.sha256(known).hexdigest()}.source"
            kept = _NOTE.fullmatch(note.read_text("ascii", "replace")) if note.is_file() else None
            if kept and kept["rate"]:
                return kept["digest"], float(kept["rate"]) or None
            if kept:  # by an earlier version
                digest = kept["digest"]
            elif source.is_dir():
                digest = folder_facts(source, True)
            else:
                with source.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"{source}: the video cannot be read ({error.strerror}); restore it") from error
        rate = None if source.is_dir() else open_video(source).steady_rate()
        write_atomically(note, lambda stream: stream.write(f"{digest} {rate or 0.0!r}".encode()))
        return digest, rate

    def _needed(self, source: Path) -> str:
        try:
            return f"it needs {space_needed([source], self.settings).words()}"
        except DataError:
            return "its size is not known before"


def _check_frames(path: Path, digest: str) -> None:
    with path.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
            raise DataError(f"{path} is not as it was written (SHA-256)")
