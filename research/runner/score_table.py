"""The one table of scores that tables, figures and claims are made from: a row a unit, metric and trained model."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from fedmed.files import write_atomically
from fedmed.plain_text import in_csv

NUMBERS = {"seed": int, "value": float}
COLUMNS = ["arm", "seed", "site", "list", "model", "unit", "metric", "value"]
MEAN_UNIT = "mean"  # unit of a list of which a run has one score alone
SENT = "sent"  # list of numbers of a whole testing list that a site sent, such as counts
ROUNDS = "rounds"  # list of what the rounds of a federated job recorded; a unit is a round
SPEED = "speed"  # list of how fast a model was, see research.runner.inference_speed
SERVER = "server"  # site of what is of a round as a whole


def patients_of(rows: pd.DataFrame) -> pd.Series:
    """Patient of each row; the unit itself where it does not say."""
    units = rows["unit"].astype(str)
    if "patient" not in rows:
        return units
    owners = rows["patient"].astype(str)
    return owners.where(owners != "", units)


def part_of(arm: str, node: str) -> str:
    """The row of one result of an arm that has several, such as that of a hospital alone."""
    return f"{arm}: {node}"


def without(site: str) -> str:
    """The node of a result for which a site was left out."""
    return f"without {site}"


def score_frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any], **common: Any) -> pd.DataFrame:
    """Scores as a table. Text is categorical: a table of pre-training has a million rows.

    Args:
        rows: records, or column -> values. ``arm`` is a row of the experiment's table; ``unit`` a case, an image, a
            patient or a video, named alike in every arm and seed; ``metric`` what was measured; ``value`` a number.
            Further columns tell apart what a protocol scores several times (``protocol``, ``fraction``, ``draw``) or
            belong to the unit (``patient``, ``label``).
        common: columns with one value.
    """
    frame = pd.DataFrame(rows)
    columns = {name: _plain(name, frame[name]) for name in frame.columns}
    for name, value in common.items():
        number = name in NUMBERS
        one = np.zeros(len(frame), np.int8)
        columns[name] = np.full(len(frame), value) if number else pd.Categorical.from_codes(one, [str(value)])
    return pd.DataFrame(columns)


def joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One table of several, the columns that every table has first; text that a frame has no column for is empty."""
    names = dict.fromkeys([*COLUMNS, *(name for frame in frames for name in frame.columns)])
    columns: dict[str, Any] = {}
    for name in names:
        parts = [_plain(name, frame[name]) if name in frame else _empty(len(frame)) for frame in frames]
        if name in NUMBERS or not parts:
            columns[name] = np.concatenate([np.asarray(part, NUMBERS.get(name)) for part in parts] or [np.empty(0)])
        else:
            columns[name] = union_categoricals(parts)
    return pd.DataFrame(columns)


def write_scores(path: Path, frame: pd.DataFrame) -> None:
    """Write scores as CSV, for a person or another program; numbers read back as they were."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")  # pandas' own takes minutes for a million rows of categories
    writer.writerow(map(in_csv, frame.columns))
    writer.writerows(zip(*(_cells(frame[name]) for name in frame.columns), strict=True))
    write_atomically(Path(path), lambda stream: stream.write(text.getvalue().encode("utf-8")))


def selected(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Rows whose columns have these values."""
    keep = np.ones(len(frame), bool)
    for column, value in wanted.items():
        keep &= (frame[column] == value).to_numpy()
    return frame[keep]


def _cells(values: pd.Series) -> list[Any]:
    """A column as it is written: each of its few texts is looked at once."""
    cells = np.asarray(values).tolist()
    shown = {text: in_csv(text) for text in set(cells) if isinstance(text, str)}
    return [shown.get(cell, cell) for cell in cells] if shown else cells


def _plain(name: str, values: pd.Series) -> Any:
    if kind := NUMBERS.get(name):
        return values.astype(kind)
    return values if isinstance(values.dtype, pd.CategoricalDtype) else pd.Categorical(values.astype(str))


def _empty(length: int) -> pd.Categorical:
    return pd.Categorical.from_codes(np.zeros(length, np.int8), [""])
