"""When the rows of a table of labels hold: seconds or mm:ss; rows of a steady step, starts alone, or start and end."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmed.errors import DataError

SECOND, START, END, PHASE = "second", "start", "end", "phase"
TIMES = (SECOND, START, END)  # columns
LOOSE = 2.0  # seconds by which ranges may leave out or overlap: whole seconds are written, the last perhaps included
_CLOCK = re.compile(r"(?:(\d+):([0-5]?\d)|(\d+)):([0-5]?\d(?:\.\d+)?)")  # h:mm:ss or mm:ss
Lines = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class RowTimes:
    """When rows hold.

    Attributes:
        seconds: when each begins, increasing.
        changes: whether a row stands for all that lies between it and the next, however long; else rows come at a
            steady step, and a long one is a gap.
        end: when the last one ends; None where the table does not say.
    """

    seconds: tuple[float, ...]
    changes: bool
    end: float | None = None


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
        raise DataError(f"{path}: line 1: {what}; it has {', '.join(header)}")
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
            raise DataError(
                f"{path}: line {line}: the time goes from {last:g} s to {second:g} s; put the rows in order"
            )
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
        raise DataError(
            f"{path}: line {line}: {column} is {row[column]!r}; write a number of seconds, 0 or more, or h:mm:ss"
        )
    return second
