"""Tables of what is seen in a video: labels of each frame or of spans, and their times."""

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmed.data.tables import csv_errors, table_lines
from fedmed.data.video.stored_video import StoredVideo
from fedmed.errors import DataError

SECOND, START, END, PHASE = "second", "start", "end", "phase"
TIMES = (SECOND, START, END)  # columns
LOOSE = 2.0  # seconds by which ranges may leave out or overlap: whole seconds are written, the last perhaps included
_CLOCK = re.compile(r"(?:(\d+):([0-5]?\d)|(\d+)):([0-5]?\d(?:\.\d+)?)")  # h:mm:ss or mm:ss
Lines = Sequence[Mapping[str, str]]
Names = Sequence[str] | None
SAME = 1e-6  # seconds
ODD_RATIO = 1.2  # of lengths: beyond it the table is rather of another rate than of another video
SINGLE = "take single frames (a study: overlays: [single_frames]; a bundle: rate: null)"
OTHER_NAMES = "a study's 'classes' may be your own names; --leave-out PHASE leaves single frames out"


@dataclass(frozen=True)
class RowTimes:
    """Times at which rows hold."""

    seconds: tuple[float, ...]  # when each begins, increasing
    changes: (
        bool  # whether a row stands for all until the next; else rows come at a steady step, and a long one is a gap
    )
    end: float | None = None  # when the last one ends; None where the table does not say


def row_times(path: Path, header: Sequence[str], rows: Lines) -> RowTimes:
    """The times of a table's rows.

    A table of ``second`` and ``phase`` alone, of which each row has another phase than the one before, is one of
    starts: of rows at a steady step most are as the one before. ``start`` says it for any table, ``end`` too.

    Raises:
        DataError: ``second`` and ``start`` are both there, or neither; a time is no time, negative, or not later than
            the one before; a range ends before it begins, or leaves a gap to the next or overlaps with it.
    """
    begins = [name for name in (SECOND, START) if name in header]
    if len(begins) != 1:
        what = f"both '{SECOND}' and '{START}' are there; keep one" if begins else f"the column '{SECOND}' is missing"
        remedy = "" if begins else f"; write '{SECOND},{PHASE}' or '{START},{END},{PHASE}', in seconds or as mm:ss"
        raise DataError(f"{path}: line 1: {what}; it has {', '.join(header)}{remedy}")
    seconds = tuple(_seconds(path, begins[0], rows))
    if END in header:
        return RowTimes(seconds, True, _last_end(path, seconds, rows))
    phases = [row[PHASE] for row in rows] if set(header) == {SECOND, PHASE} else []
    differ = len(phases) > 1 and all(one != other for one, other in zip(phases, phases[1:], strict=False))
    return RowTimes(seconds, differ or begins[0] == START)


def time_of(text: str) -> float:
    """Seconds of a number, mm:ss or h:mm:ss; not a number where it is none of these, or negative."""
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, alone, seconds = clock.groups(default="0")
        return 3600 * int(hours) + 60 * (int(minutes) + int(alone)) + float(seconds)
    try:
        second = float(text)
    except ValueError:
        return math.nan
    return second if 0 <= second < math.inf else math.nan


def _seconds(path: Path, column: str, rows: Lines) -> Iterator[float]:
    last = -math.inf
    for line, row in enumerate(rows, 2):
        second = _time(path, line, column, row)
        if second <= last:
            raise DataError(f"{path}: line {line}: the time goes from {last:g} to {second:g} s; put the rows in order")
        last = second
        yield second


def _last_end(path: Path, seconds: Sequence[float], rows: Lines) -> float | None:
    """Of the last row, which may be empty; the others must meet the next row's start."""
    ends = [None if row[END] == "" and row is rows[-1] else _time(path, n, END, row) for n, row in enumerate(rows, 2)]
    for line, (start, end, following) in enumerate(zip(seconds, ends, [*seconds[1:], None], strict=True), 2):
        if end is not None and end < start:
            raise DataError(f"{path}: line {line}: ends at {end:g} s, before it begins at {start:g} s; correct it")
        if end is not None and following is not None and abs(following - end) > LOOSE:
            how = "nothing is said of the time between" if following > end else "both hold between"
            raise DataError(
                f"{path}: line {line} ends at {end:g} s and line {line + 1} begins at {following:g} s: {how}; let one "
                "end where the next begins, and give a time without a phase a row and a name too"
            )
    return ends[-1]


def _time(path: Path, line: int, column: str, row: Mapping[str, str]) -> float:
    second = time_of(row[column])
    if math.isnan(second):
        raise DataError(f"{path}: line {line}: {column} is {row[column]!r}; write seconds, 0 or more, or h:mm:ss")
    return second


@dataclass(frozen=True)
class TimedLabels:
    """A table that was read. A row holds from its second to that of the next.

    Seconds of a file count from its first frame; of a folder of frames they are those of its ``frames.csv`` or names.
    """

    path: Path
    seconds: NDArray[np.float64]  # (N,) increasing
    interval: float  # seconds from one row to the next, the median
    phases: NDArray[np.int64] | None  # (N,) places in ``phase_names``; None where phases are not asked for
    tools: NDArray[np.uint8] | None  # (N, n) 0 or 1, columns as ``tool_names``; None where tools are not asked for
    phase_names: tuple[str, ...]
    tool_names: tuple[str, ...]
    changes: bool = False  # as :class:`RowTimes`
    end: float | None = None

    def shown(self) -> dict[str, int]:
        """Tool -> how many rows show it; empty where tools are not asked for."""
        return {} if self.tools is None else dict(zip(self.tool_names, self.tools.sum(axis=0).tolist(), strict=True))

    def lasting(self, end: float | None = None) -> dict[str, int]:
        """Phase -> how many rows are of it, of rows at changes: how many seconds; empty where phases are not asked for.

        Args:
            end: of the video, until which the last row holds; without it that counts as a second.
        """
        if self.phases is None:
            return {}
        ends = np.append(self.seconds[1:], max(self.seconds[-1], end or self.end or 0.0))
        weights = np.maximum(1, ends - self.seconds) if self.changes else None
        counts = np.bincount(self.phases, weights, minlength=len(self.phase_names)).round().astype(int).tolist()
        return dict(zip(self.phase_names, counts, strict=True))

    def last_row(self, end: float) -> str:
        """A sentence where nothing but the video's end, in seconds, ends the last of rows at changes, a long one."""
        if not self.changes or self.end is not None or end - self.seconds[-1] < 1.5 * self.interval:
            return ""
        name = "" if self.phases is None else f", '{self.phase_names[self.phases[-1]]}',"
        return f"a row for each start: the last{name} holds from {self.seconds[-1]:g} s to the end at {end:g} s"

    def phases_of(self, video: StoredVideo) -> NDArray[np.int64]:
        """(T,) the phase of each frame of the store, dropped or not; see :meth:`rows_of`."""
        if self.phases is None:
            raise DataError(f"{self.path}: was read without phases; ask for them")
        return self.phases[self.rows_of(video)]

    def tools_of(self, video: StoredVideo) -> NDArray[np.uint8]:
        """(T, n) the tools of each frame of the store, dropped or not; see :meth:`rows_of`."""
        if self.tools is None:
            raise DataError(f"{self.path}: was read without tools; ask for them")
        return self.tools[self.rows_of(video)]

    def rows_of(self, video: StoredVideo) -> NDArray[np.int64]:
        """(T,) the row that holds at the time of each frame of the store; a frame before the first row takes that.

        Raises:
            DataError: table and video begin or end apart by more than one interval (of rows or of frames, whichever is
                longer; of rows at changes two seconds), or frames lie where rows are missing.
        """
        offset = video.start
        times, rate = video.times + offset, video.facts["rate"]
        self._compare_ends(video, offset, offset + float(video.facts["seconds"]), 1 / rate if rate else 0.0)
        rows = np.searchsorted(self.seconds, times + SAME, side="right") - 1
        if self.changes:
            return np.maximum(rows, 0)
        long = np.append(np.diff(self.seconds), 0.0)[rows] > 1.5 * self.interval
        missing = long & (times - self.seconds[rows] > self.interval - SAME) & (rows >= 0)
        if missing.any():
            frame = int(np.argmax(missing))
            line, hint = int(rows[frame]) + 2, "" if rate is None else f", or {SINGLE}"
            raise DataError(
                f"{self.path}: no row from line {line} ({self.seconds[line - 2]:g} s) to line {line + 1} "
                f"({self.seconds[line - 1]:g} s), though one comes every {self.interval:g} s, and the frame of "
                f"{video.source} at {times[frame]:g} s lies there; fill the gap{hint if video.source.is_dir() else ''}"
            )
        return np.maximum(rows, 0)

    def _compare_ends(self, video: StoredVideo, start: float, end: float, frame: float) -> None:
        allowed = max(LOOSE if self.changes else self.interval, frame) + SAME
        first, last = float(self.seconds[0]), float(self.seconds[-1])
        if first - start > allowed:
            begins = f"but {video.source} begins at {start:g} s"
            raise DataError(f"{self.path}: line 2 is of {first:g} s, {begins}; add the rows before")
        closes, stated = last + self.interval, f"is of {last:g} s"
        if self.changes:
            closes, stated = (last, stated) if self.end is None else (self.end, f"ends at {self.end:g} s")
        if abs(closes - end) <= allowed or (self.changes and self.end is None and last < end):
            return
        ratio = (closes - start) / max(end - start, SAME)
        shown = f"{ratio:.3g}" if ratio > 1 else f"1/{1 / max(ratio, SAME):.3g}"
        hint = f", {shown} times as far: perhaps '{SECOND}' holds numbers of frames, or counts at another rate"
        hint = "" if 1 / ODD_RATIO < ratio < ODD_RATIO else hint
        raise DataError(
            f"{self.path}: is {'longer' if closes > end else 'shorter'} than its video: line {len(self.seconds) + 1} "
            f"{stated}, and {video.source} ends at {end:g} s{hint}; use the table of this video, in seconds"
        )


def read_label_table(path: Path | str, phases: Names = (), tools: Names = ()) -> TimedLabels:
    """Read a CSV with the columns ``second``, ``phase`` (a name) and one of 0 and 1 for each tool.

    Rows hold until the next. Times are seconds, mm:ss or h:mm:ss; ``start`` and perhaps ``end`` may stand for
    ``second``, see :func:`fedmed.data.video.label_table.row_times`.

    Args:
        path: the file.
        phases, tools: the names that there are, in the order of the network's outputs. Empty: that part is not asked
            for and not looked at. None: whatever the table has; phases then are in the order of their first use.

    Raises:
        DataError: no such file, or not such a table: a column is missing or unknown, a time is not a number, negative
            or not later than the one before, a phase unknown, a value other than 0 and 1. It names file and line.
    """
    path = Path(path)
    header, rows = _lines(path)
    columns = [name for name in header if name not in (*TIMES, PHASE)]
    wanted = columns if tools is None else list(tools)
    for name in columns if tools else ():
        if name not in wanted:
            raise DataError(f"{path}: line 1: {unknown('tool', name, wanted)}")
    for name in (*([PHASE] if phases else ()), *wanted):
        if name not in header:
            raise DataError(f"{path}: line 1: the column '{name}' is missing; it has {', '.join(header)}")
    times = row_times(path, header, rows)
    seconds = np.array(times.seconds)
    used = list(dict.fromkeys(row[PHASE] for row in rows)) if phases is None and PHASE in header else list(phases or ())
    interval = float(np.median(np.diff(seconds))) if len(seconds) > 1 else 1.0
    of_phases, of_tools = None, None
    if used:
        of_phases = np.array([_phase(path, line, row[PHASE], used) for line, row in enumerate(rows, 2)], np.int64)
    if wanted:
        of_tools = np.array([_present(path, line, row, wanted) for line, row in enumerate(rows, 2)], np.uint8)
    names = tuple(used), tuple(wanted)
    return TimedLabels(path, seconds, interval, of_phases, of_tools, *names, times.changes, times.end)


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """A sentence about a name that nobody knows: those that there are, and the nearest."""
    near = get_close_matches(name, known, 1, 0.5)
    return f"the {what} {name!r} is unknown; use {', '.join(known)}" + (f" (did you mean {near[0]!r}?)" if near else "")


def _lines(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Heading and rows, in which nothing is missing and nothing is too much."""
    try:
        text = table_lines(path)
    except OSError as error:
        raise DataError(f"{path}: the table of labels cannot be read ({error.strerror}); correct the path") from error
    with csv_errors(path):
        lines = list(csv.reader(text, delimiter=max(",;\t", key=text[0].count) if text else ","))
    header = [_column(name) for name in lines[0]] if lines else []
    if len(lines) < 2:
        heading = f"{SECOND},{PHASE},grasper"
        raise DataError(f"{path}: has no rows of labels; write a heading such as {heading} and one row a second")
    if len(set(header)) < len(header):
        raise DataError(f"{path}: line 1: a column is there twice in {', '.join(header)}; keep one")
    for number, cells in enumerate(lines[1:], 2):
        if len(cells) != len(header):
            raise DataError(f"{path}: line {number}: has {len(cells)} values for {len(header)} columns; correct it")
    return header, [{name: cell.strip() for name, cell in zip(header, cells, strict=True)} for cells in lines[1:]]


def _column(name: str) -> str:
    """As it is written, but for capitals of those that are no tools."""
    name = name.strip()
    return name.lower() if name.lower() in (*TIMES, PHASE) else name


def _phase(path: Path, line: int, name: str, known: Sequence[str]) -> int:
    if name not in known or not name:
        raise DataError(f"{path}: line {line}: {unknown('phase', name, known)}; {OTHER_NAMES}")
    return known.index(name)


def _present(path: Path, line: int, row: Mapping[str, str], tools: Sequence[str]) -> list[int]:
    numbers = []
    for name in tools:
        try:
            number = float(row[name])
        except ValueError:
            number = math.nan
        if number not in (0, 1):
            raise DataError(f"{path}: line {line}: '{name}' is {row[name]!r}; write 1 where the tool is seen, else 0")
        numbers.append(int(number))
    return numbers
