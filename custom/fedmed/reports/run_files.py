"""Read the single files of a run, each with an error that names it."""

import json
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedmed.errors import DataError, FedMedError
from fedmed.files import read_json
from fedmed.plain_text import every_text, in_terminal

DAMAGED = "the run is damaged, start it again"


def number(value: Any) -> float | None:
    """Return a finite float, or None for null, NaN, infinity and anything that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file; a missing file is empty, and a half-written last line is left out.

    What sites sent is in it: texts are as :func:`fedmed.plain_text.in_terminal` shows them.
    """
    if not path.is_file():
        return []
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = []
    for place, text in enumerate(texts, start=1):
        try:
            lines.append(every_text(json.loads(text)))
        except (ValueError, RecursionError) as error:
            if place < len(texts):
                raise FedMedError(f"{path}, line {place} is damaged: {error}; remove the line") from error
    return [line for line in lines if isinstance(line, dict)]


def read_record(path: Path) -> dict[str, Any]:
    """Read ``run.json`` or ``result.json``; texts are as in :func:`read_lines`. FedMedError: it is damaged."""
    content: dict[str, Any] = every_text(read_json(path, FedMedError, DAMAGED))
    return content


def read_arrays(path: Path, keys: Sequence[str], also: Sequence[str] = ()) -> list[np.ndarray]:
    """Read arrays of an ``.npz`` file, in the order of the keys; DataError for a missing key or a damaged file.

    Args:
        path, keys: the file, and what it must hold.
        also: what it may hold; two NaN stand for what it does not.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            unknown = np.full(2, np.nan)
            return [*(file[key] for key in keys), *(file.get(key, unknown) for key in also)]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:  # NumPy looks at the checksums
        raise DataError(f"cannot read the picture {path}: {error}; evaluate the site again") from error


def read_table(path: Path) -> pd.DataFrame:
    """Read a CSV file with a head, every cell as text on one line; a missing file is empty."""
    if not path.is_file():
        return pd.DataFrame()
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False).map(in_terminal).rename(columns=in_terminal)
    except (OSError, ValueError) as error:
        raise FedMedError(f"cannot read {path}: {error}; evaluate the site again") from error


def column(table: pd.DataFrame, name: str) -> np.ndarray:
    """One column of ``cases.csv`` as floats (n,); NaN where a cell is empty, not a number or not finite.

    Raises:
        FedMedError: there is no such column.
    """
    if table.empty:
        return np.empty(0)
    if name not in table:
        raise FedMedError(f"the column {name} is missing in cases.csv; evaluate the site again")
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
    return np.where(np.isfinite(values), values, np.nan)
