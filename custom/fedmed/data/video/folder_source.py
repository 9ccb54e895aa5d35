"""A folder of frames with their times, read like a video file."""

import csv
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.data.image_size import opened_picture
from fedmed.data.tables import csv_errors, table_lines
from fedmed.data.video.frame_settings import Frame
from fedmed.data.video.source import Damage, Scaler, ShownFrame, need_av
from fedmed.errors import DataError, first_line

TABLE = "frames.csv"
SINGLES = "pictures.csv"
UNEVEN = 0.0011  # seconds that frames which come evenly may be off: times are often whole milliseconds
CLOCK = re.compile(r"(\d+)h(\d+)m(\d+(?:[.,]\d+)?)s", re.IGNORECASE)  # a time in a name, such as op_00h12m30s
PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"}


class FrameFolder:
    """Pictures of one video: PNG, JPEG, BMP or TIFF.

    Times stand in ``frames.csv`` (columns ``file``, relative to the folder, and ``second``); without it, the last
    number of a file's name divided by ``names_rate`` is its second. A frame is shown until the next; the last one as
    long as most others.

    A folder with ``pictures.csv`` (column ``file``) is no video: its pictures have nothing to do with each other. The
    n-th of its lines, counted from 0, is taken as that of second n, so that masks and tables can name it.

    Attributes:
        single: whether it is such a folder.
    """

    def __init__(self, path: Path, names_rate: float | None = None) -> None:
        self.path, self.av = path, need_av()
        table, singles = path / TABLE, path / SINGLES
        self.single = singles.is_file()
        if self.single:
            self.listed = self._from_table(singles, ("file",))
        else:
            self.listed = self._from_table(table) if table.is_file() else frames_by_name(path, names_rate)
        if not self.listed:
            raise DataError(f"{path}: has no frames; put pictures into it, or remove the entry")

    def frames(self, damage: Damage) -> Iterator[ShownFrame]:
        """See :class:`fedmed.data.video.source.VideoSource`; frames come in the order of the table.

        Raises:
            DataError: two pictures have the same time, whatever ``damage`` says; or what it is told and refuses.
        """
        self._check_times()
        scaler, last, usual = Scaler(), -math.inf, self._usual_interval()
        for name, second in self.listed:
            if second < last:
                damage.add("times_back", f"the time of {name} goes back from {last:.3f} to {second:.3f} s")
                continue
            try:
                picture = self._picture(name)
            except (OSError, SyntaxError, ValueError) as error:
                damage.add("damaged", f"the frame {name} cannot be read ({first_line(error)})")
                continue
            last = second
            if (size := (picture.height, picture.width)) not in damage.sizes:
                damage.sizes.append(size)
            yield ShownFrame(second, second + usual, picture, scaler)

    def _check_times(self) -> None:
        """A folder is one video: histories of two would be mixed, or one's frames lost."""
        names: dict[float, str] = {}
        for name, second in self.listed:
            if (other := names.setdefault(second, name)) != name:
                text = f"{self.path}: {other} and {name} are both of second {second:g}: frames of two videos"
                raise DataError(f"{text}; put each video into a folder of its own, or correct their times")

    def sample(self, count: int, height: int, width: int, exact: bool = False) -> list[Frame]:
        chosen = sorted({int((number + 0.5) / count * len(self.listed)) for number in range(count)})
        scaler, samples = Scaler(), []
        for place in chosen:
            try:
                samples.append(scaler(self._picture(self.listed[place][0]), height, width))
            except (OSError, SyntaxError, ValueError):
                continue  # told when all frames are read
        return samples

    def seconds(self) -> float:
        return max(second for _, second in self.listed) - self.listed[0][1] + self._usual_interval()

    def count(self) -> int:
        return len(self.listed)

    def steady_rate(self) -> float | None:
        times = np.array([second for _, second in self.listed])
        if self.single or len(times) < 2 or times[-1] <= times[0]:
            return None
        rate, since, numbers = (len(times) - 1) / (times[-1] - times[0]), times - times[0], np.arange(len(times))
        # The two times alone tell it badly, so a whole number that fits all is what is meant.
        known = (one for one in (float(round(rate)), float(rate)) if one)
        return next((one for one in known if np.abs(since - numbers / one).max() <= UNEVEN), None)

    def _usual_interval(self) -> float:
        return float(np.median(np.diff([second for _, second in self.listed]))) if len(self.listed) > 1 else 0.0

    def _picture(self, name: str) -> Any:
        with opened_picture(self.path / name) as image:
            return self.av.VideoFrame.from_ndarray(np.asarray(image.convert("RGB")), format="rgb24")

    def _from_table(self, table: Path, columns: tuple[str, ...] = ("file", "second")) -> list[tuple[str, float]]:
        """(file, second) of each line; of a table without seconds its number, from 0."""
        with csv_errors(table):
            rows = csv.DictReader(table_lines(table))
            if not set(columns) <= set(rows.fieldnames or ()):
                names = " and ".join(f"'{name}'" for name in columns)
                raise DataError(f"{table}: needs the columns {names}; it has {rows.fieldnames}")
            listed = []
            for n, row in enumerate(rows):
                name = row["file"]
                if not name or Path(name).is_absolute() or ".." in Path(name).parts:
                    raise DataError(f"{table}: file {name!r} is not a path below the folder; correct it")
                listed.append((name, _second(table, n, row["second"]) if "second" in columns else float(n)))
            return listed


def pictures_of(folder: Path) -> list[str]:
    """Names of a folder's pictures, in order; hidden files, such as the notes of macOS, are none."""
    files = (path for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(path.name for path in files if path.suffix.lower() in PICTURES)


def frames_by_name(folder: Path, names_rate: float | None, option: str = "names_rate") -> list[tuple[str, float]]:
    """(name, second) of a folder's pictures in the order of their times, by the last number of each name.

    Names that all hold a time such as ``00h12m30s`` need no rate.

    Args:
        names_rate: those numbers a second.
        option: what a person gives it as.

    Raises:
        DataError: there are pictures and no ``names_rate``, a name has no number, or two names have the same.
    """
    names, table = pictures_of(folder), f"write {TABLE} with the columns file,second"
    clocks = [CLOCK.search(Path(name).stem) for name in names]
    if names_rate is None and names and all(clocks):
        return _by_clock(names, [clock.groups() for clock in clocks if clock])
    if names and names_rate is None:
        remedy = f"give {option} (25 if the numbers in their names count 25 a second), name them by their time as in "
        remedy += f"00h12m30s.jpg, or {table}"
        raise DataError(f"{folder}: nothing says when its frames are shown; {remedy}")
    numbers: dict[int, str] = {}
    for name in names:
        digits = re.findall(r"\d+", Path(name).stem)
        if not digits:
            raise DataError(f"{folder}: no number in the name of {name} tells its time; {table}, or move it away")
        if (other := numbers.setdefault(int(digits[-1]), name)) != name:
            remedy = f"keep one of them, put each video into a folder of its own, or {table}"
            raise DataError(f"{folder}: the last number in the names of {other} and {name} is the same; {remedy}")
    return [(name, number / (names_rate or 1)) for number, name in sorted(numbers.items())]


def _by_clock(names: Sequence[str], clocks: Sequence[Sequence[str]]) -> list[tuple[str, float]]:
    """(name, second) in the order of the times; two of one time are refused where frames are read."""
    seconds = [int(hour) * 3600 + int(minute) * 60 + float(second.replace(",", ".")) for hour, minute, second in clocks]
    return sorted(zip(names, seconds, strict=True), key=lambda one: (one[1], one[0]))


def folder_facts(path: Path, contents: bool) -> str:
    """A digest of a folder's pictures and table: of names, sizes and times of change, or of names and contents."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file() and (file.name in (TABLE, SINGLES) or file.suffix.lower() in PICTURES):
            digest.update(f"\0{file.relative_to(path)}\0".encode(errors="surrogateescape"))
            facts = file.stat()
            digest.update(file.read_bytes() if contents else f"{facts.st_size} {facts.st_mtime_ns}".encode())
    return digest.hexdigest()


def _second(table: Path, number: int, text: str | None) -> float:
    try:
        second = float(text or "")
    except ValueError:
        second = math.nan
    if not math.isfinite(second):
        raise DataError(f"{table}: line {number + 2}: second is {text!r}; write a number of seconds")
    return second
