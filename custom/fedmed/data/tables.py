"""Tables of labels, patients and times (CSV) are read whole, so their size is looked at first."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmed.data.read_limits import file_bytes
from fedmed.errors import DataError

OF_A_VIDEO, OF_IMAGES = 2**25, 2**27  # bytes: a row for each frame of a day, and one for each of a million images
LONGEST_LINE = 100_000  # characters; a line of labels has some hundreds


def table_lines(path: Path, largest: int = OF_A_VIDEO) -> list[str]:
    """The lines of a table in UTF-8.

    Raises:
        DataError: not a regular file, one of more than ``largest`` bytes, not in UTF-8, or with a line of more than
            ``LONGEST_LINE``.
        OSError: it cannot be read.
    """
    if (size := file_bytes(path)) > largest:
        raise DataError(f"{path}: has {size} bytes, and a table at most {largest}; leave out columns")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not in UTF-8; in Excel save it as 'CSV UTF-8'") from error
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            text = f"{path}: line {number} has {len(line)} characters, and a line of a table at most {LONGEST_LINE}"
            raise DataError(f"{text}; leave out columns")
    return lines


@contextmanager
def csv_errors(path: Path) -> Iterator[None]:
    """Tell what csv cannot split into cells as a DataError that names the table."""
    try:
        yield
    except csv.Error as error:
        raise DataError(f"{path}: is not a CSV ({error}); is a quotation mark never closed?") from error
