"""Times at which the pictures of a folder were taken, if a table or their names tell it."""

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

from .errors import BundleInputError

TABLE = "frames.csv"


def picture_times(paths: Sequence[str], folder: str | Path, names_rate: float | None = None) -> dict[str, float]:
    """Seconds of those pictures whose time is known.

    Args:
        paths: pictures; videos among them are left out.
        folder: in it and below it, a table ``frames.csv`` says in its column ``second`` when each ``file``, relative to
            the table's folder, was taken.
        names_rate: where there is no table at all, the last number of a picture's name divided by this is its second.

    Raises:
        BundleInputError: a table without these columns or with another second, a name without a number, or two
            pictures of one folder at the same second.
    """
    if names_rate is not None and not 0 < names_rate < math.inf:
        raise BundleInputError(f"names_rate is {names_rate!r}; give the numbers in the names a second, such as 25")
    tables = sorted(Path(folder).rglob(TABLE)) if Path(folder).is_dir() else []
    if tables:
        listed = {str(table.parent / file): second for table in tables for file, second in _rows(table)}
        return _checked({path: listed[path] for path in paths if path in listed})
    if names_rate is None:
        return {}
    return _checked({path: _number(path) / names_rate for path in paths})


def _checked(times: dict[str, float]) -> dict[str, float]:
    """The same: a folder is one video, whose pictures may be one another's history."""
    known: dict[tuple[Path, float], str] = {}
    for path, second in times.items():
        if (other := known.setdefault((Path(path).parent, second), path)) != path:
            raise BundleInputError(
                f"{other} and {path} are both of second {second:g}: frames of two videos in one folder; put each video "
                "into a folder of its own, or correct their times"
            )
    return times


def _rows(table: Path) -> list[tuple[str, float]]:
    with table.open(newline="", encoding="utf-8-sig") as stream:
        rows = csv.DictReader(stream)
        if not {"file", "second"} <= set(rows.fieldnames or ()):
            raise BundleInputError(f"{table}: needs the columns 'file' and 'second'; it has {rows.fieldnames}")
        return [(row["file"], _second(table, line, row["second"])) for line, row in enumerate(rows, start=2)]


def _second(table: Path, line: int, text: str | None) -> float:
    try:
        second = float(text or "")
    except ValueError:
        second = math.nan
    if not math.isfinite(second):
        raise BundleInputError(f"{table}: line {line}: 'second' is {text!r}; write a number")
    return second


def _number(path: str) -> int:
    if not (numbers := re.findall(r"\d+", Path(path).stem)):
        raise BundleInputError(f"{path}: no number in its name tells its time; write {TABLE}, or leave names_rate out")
    return int(numbers[-1])
