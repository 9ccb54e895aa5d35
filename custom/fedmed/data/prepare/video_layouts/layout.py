"""Base of every layout of recordings: that of the classes in this folder, a file each."""

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmed.data import operation_names
from fedmed.data.prepare.folder import visible_files
from fedmed.data.tables import csv_errors, table_lines
from fedmed.data.video.file_source import open_video
from fedmed.data.video.folder_source import SINGLES, TABLE, frames_by_name
from fedmed.data.video.frame_masks import picture
from fedmed.data.video.stored_video import LONGEST_GAP
from fedmed.errors import DataError

MOVIES = {
    ".mp4",
    ".avi",
    ".mov",
    ".mkv",
    ".m4v",
    ".mpg",
    ".mpeg",
    ".mts",
    ".m2ts",
    ".ts",
    ".vob",
    ".wmv",
    ".webm",
    ".mxf",
}
PARTS = {0: 0, 1: 1, 2: 2, 3: 3}  # background, shaft, wrist, jaw or another working end
PHASES = (*operation_names.PHASES, "gallbladder_extraction")  # the last is in no protocol of six phases
Row = dict[str, Any]  # of a table: second, phase, tools
NAMES_RATE = "--names-rate"
LONG_GAP = 60.0  # seconds without a new frame that are worth a look


@dataclass(frozen=True)
class Recording:
    """One video as it was found; nothing of it has been read.

    Attributes:
        case: its name, unique in the folder.
        video: a file, or a folder of frames.
        patient: "" where nothing but its name tells.
        frames: of a folder that does not say when its frames are shown: (file relative to it, second).
        single: whether those are pictures that have nothing to do with each other.
        labels: files with its labels.
        masks: (second, files of one mask).
        list: of the datalist, where the folder says it.
        fault: why it is refused before it is read.
        notes: what is worth a look.
        patient_said: False where its name stands for the patient.
    """

    case: str
    video: Path
    patient: str = ""
    frames: tuple[tuple[str, float], ...] = ()
    single: bool = False
    labels: tuple[Path, ...] = ()
    masks: tuple[tuple[float, tuple[Path, ...]], ...] = ()
    list: str = ""
    fault: str = ""
    notes: tuple[str, ...] = ()
    patient_said: bool = True

    @property
    def stem(self) -> str:
        """Its name without the ending of a video file."""
        ending = self.video.suffix if self.video.suffix.lower() in MOVIES else ""
        return self.case.removesuffix(ending)


class Layout(ABC):
    """Finds the recordings of a folder, and reads their labels.

    Attributes:
        about: a line for ``--help``.
        phases, tools: the names that its tables have once written; None: whatever they have.
        mask_values: value of a mask -> the value that is written.
        mask_hint: how other values can be used.
        note: what is worth knowing of each recording.
        names_rate: numbers a second in the names of frames whose times nothing else tells.
    """

    about: ClassVar[str]
    phases: ClassVar[Sequence[str] | None] = ()
    tools: ClassVar[Sequence[str] | None] = ()
    mask_values: ClassVar[Mapping[int, int]] = PARTS
    mask_hint: ClassVar[str] = ""
    note: ClassVar[str] = ""
    names_rate: float | None = None

    @abstractmethod
    def fits(self, folder: Path) -> bool:
        """True where a folder obviously has this layout."""

    @abstractmethod
    def find(self, folder: Path) -> list[Recording]:
        """The recordings, in the order of their names; DataError for a folder that cannot be listed."""

    def timed(self, recording: Recording) -> Recording:
        """The same; of a folder without a table of times its frames are those that their names tell."""
        video = recording.video
        if recording.fault or not video.is_dir() or any((video / table).is_file() for table in (TABLE, SINGLES)):
            return recording
        try:
            frames = frames_by_name(video, self.names_rate, NAMES_RATE)
            return replace(recording, frames=tuple(frames), notes=_gap_notes(video, frames, self.names_rate))
        except DataError as error:
            return replace(recording, fault=str(error))

    def rows(self, recording: Recording) -> list[Row]:
        """The labels of a recording that has some: rows with ``second``, ``phase`` and a column of 0 and 1 a tool.

        Raises:
            DataError: a file is not what this layout has, or holds an unknown name; it names file and line.
        """
        raise NotImplementedError

    def mask(self, files: Sequence[Path]) -> NDArray[np.uint8]:
        """(H, W) one mask, of the values that are written; where several files overlap, the larger value counts.

        Raises:
            DataError: a file cannot be read, has several channels, another size, or a value that is not known.
        """
        return np.max([self._values(file) for file in files], axis=0)

    def values_of(self, file: Path) -> Mapping[int, int]:
        """Value of a mask -> the value that is written, of one file."""
        return self.mask_values

    def _values(self, file: Path) -> NDArray[np.uint8]:
        stored, values = picture(file), self.values_of(file)
        table = np.full(256, 255, np.uint8)
        table[list(values)] = list(values.values())
        unknown = sorted(set(np.unique(stored).tolist()) - set(values))
        if stored.ndim != 2 or unknown:
            what = f"the value {unknown[0]}" if stored.ndim == 2 else f"shape {stored.shape}"
            known = f"{', '.join(map(str, values))} in one channel{self.mask_hint}"
            raise DataError(f"{file}: the mask has {what}; use {known}")
        return table[stored]


def _gap_notes(video: Path, frames: Sequence[tuple[str, float]], rate: float | None) -> tuple[str, ...]:
    """A note on a long time without a new frame; DataError for none at all, and where numbers can hardly be times."""
    if not frames:
        raise DataError(f"{video}: has no frames; put pictures into it, or remove it")
    gaps = [(after[1] - before[1], before[0], after[0]) for before, after in pairwise(frames)]
    longest, before, after = max(gaps, default=(0.0, "", ""))
    read = f"at {NAMES_RATE} {rate:g}" if rate else "by the times in their names"
    if longest > LONGEST_GAP:
        text = f"{video}: {read} more than an hour lies between {before} and {after}"
        raise DataError(f"{text}; give the rate at which the numbers count, or move away what is not a frame of it")
    text = f"{read} more than {LONG_GAP:g} s lie between two of its frames"
    otherwise = ": if none is missing there, the numbers count at another rate" if rate else ""
    return (text + otherwise,) if longest > LONG_GAP else ()


def movies(folder: Path) -> list[Path]:
    """Files whose extension is that of a video, at any depth."""
    return [file for _, files in visible_files(folder, ()) for file in files if file.suffix.lower() in MOVIES]


def numbered_frames(folder: Path, rate: float) -> tuple[tuple[str, float], ...]:
    """(name, second) of the PNG files of a folder whose names end with their number, ``rate`` numbers a second."""
    numbers = {path.name: re.search(r"\d+$", path.stem) for path in sorted(folder.glob("*.png"))}
    return tuple((name, int(number[0]) / rate) for name, number in numbers.items() if number)


def rows_of_text(file: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """(line, cells) of a text file, heading included; DataError where it cannot be read or has fewer than two."""
    try:
        lines = table_lines(file)
    except OSError as error:
        raise DataError(f"{file}: the labels cannot be read ({error}); restore them") from error
    numbered = enumerate(csv.reader(lines, delimiter=delimiter), 1)
    with csv_errors(file):
        rows = [(number, [cell.strip() for cell in cells]) for number, cells in numbered if any(cells)]
    if len(rows) < 2:
        raise DataError(f"{file}: has no rows of labels; restore it")
    return rows


def whole(file: Path, line: int, text: str) -> int:
    """A whole number of a table; DataError for anything else."""
    try:
        return int(float(text))
    except (ValueError, OverflowError) as error:
        raise DataError(f"{file}: line {line}: {text!r} is not a whole number; correct it") from error


def frames_a_second(video: Path) -> float:
    """Frames a second of a file, as its header says; DataError where it does not."""
    source = open_video(video)
    if not (seconds := source.seconds()) > 0:
        raise DataError(f"{video}: states that it has no length, so its frames have no rate; write it anew with times")
    return source.count() / seconds
