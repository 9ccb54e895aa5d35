"""The files that an evaluation writes at the site: a table of its cases, and pictures of three of them."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedmed.errors import DataError
from fedmed.files import write_atomically
from fedmed.plain_text import in_csv


def require_all(seen: int, named: int, truth: str) -> None:
    """Raise DataError unless every named case was seen, at least one; ``truth``: what a case needs for its score."""
    if not seen or seen != named:
        raise DataError(
            f"evaluation saw {seen} of {named} cases; list at least one image with its {truth} under 'testing' in the "
            "site's datalist"
        )


def _save_compressed(content: Mapping[str, Any], stream: BinaryIO) -> None:
    np.savez_compressed(stream, **content)


def pictured(scores: Sequence[float]) -> dict[str, int]:
    """Indices of the three cases that get pictures: ``best``, ``median`` and ``worst`` score."""
    ranked = sorted(range(len(scores)), key=lambda place: -scores[place])
    return {"best": ranked[0], "median": ranked[len(ranked) // 2], "worst": ranked[-1]}


def write_evaluation(
    folder: Path,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    pictures: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write ``cases.csv`` and the pictures, each completely or not at all.

    Raises:
        DataError: the folder cannot be written.
    """
    write_table(folder / "cases.csv", header, rows)
    write_pictures(folder, pictures)


def write_patients(folder: Path, names: Sequence[str], patients: Sequence[str]) -> None:
    """Write ``patients.csv``, whose each case is: cases of one patient are not independent of one another.

    Args:
        folder: of the evaluation.
        names, patients: of the cases, in the order of ``cases.csv``; empty text where the datalist does not say.

    Raises:
        DataError: the folder cannot be written.
    """
    write_table(folder / "patients.csv", ["case", "patient"], zip(names, patients, strict=True))


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV completely or not at all; its folder is made; no cell is a formula. DataError as above."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerows(map(in_csv, row) for row in (header, *rows))
    _write(path.parent, {path.name: lambda stream: stream.write(table.getvalue().encode())})


def write_pictures(folder: Path, pictures: Mapping[str, Mapping[str, Any]]) -> None:
    """Write compressed ``<name>.npz`` of each picture; DataError as above."""
    _write(folder, {f"{name}.npz": partial(_save_compressed, content) for name, content in pictures.items()})


def _write(folder: Path, files: Mapping[str, Callable[[BinaryIO], object]]) -> None:
    try:
        for name, write in files.items():
            write_atomically(folder / name, write)
    except OSError as error:
        raise DataError(
            f"{folder}: the evaluation cannot be written ({error}); free space or correct its permissions"
        ) from error
