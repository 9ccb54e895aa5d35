"""Scores of seeds that another machine ran: files ``scores.csv`` of the same table."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedmed.errors import DataError
from research.runner.score_table import COLUMNS, NUMBERS, joined, part_of


@dataclass(frozen=True)
class GivenScores:
    """Rows of such files; their seeds need no run.

    Attributes:
        frame: of all files.
        seeds: that they have, in order.
    """

    frame: pd.DataFrame
    seeds: tuple[int, ...]

    def of(self, arms: Iterable[str]) -> pd.DataFrame:
        """Rows of these arms, and of the results of each."""
        names = list(arms)
        shown = [any(arm == n or arm.startswith(part_of(n, "")) for n in names) for arm in self.frame["arm"]]
        return self.frame[np.array(shown, bool)]


def given_scores(paths: Sequence[Path], arms: Collection[str]) -> GivenScores:
    """Read files of scores.

    The same run differs by rounding from machine to machine, which training makes larger, and arms are compared seed by
    seed: so all arms of a seed must come from one file.

    Args:
        paths: of ``scores.csv``, each of other seeds.
        arms: that the table shows, each of which a seed must have.

    Raises:
        DataError: a file that cannot be read or is no table of scores; a seed in two files, or without one of the arms.
    """
    frames, owners = [], dict[int, Path]()
    for path in paths:
        frame = _read(path)
        for seed, rows in frame.groupby("seed"):
            if seed in owners:
                raise DataError(f"{path}: seed {seed} is in {owners[int(seed)]} too; give each seed once")
            owners[int(seed)] = path
            if lacking := set(arms) - set(rows["arm"]):
                raise DataError(
                    f"{path}: seed {seed} has no scores of {_named(lacking)}. Arms are compared seed by seed, on one "
                    "machine: choose those that it has with --arms, or run this seed here without the file"
                )
        frames.append(frame)
    return GivenScores(joined(frames), tuple(sorted(owners)))


def _read(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        missing = [name for name in COLUMNS if name not in frame]
        if missing or frame.empty:
            raise ValueError(f"it has no column {_named(missing)}" if missing else "it has no rows")
        return frame.astype(NUMBERS)
    except (OSError, ValueError) as error:  # pandas' own errors of parsing are ValueErrors
        raise DataError(f"{path}: is no table of scores ({error}); give OUT/<data>/<table>/scores.csv") from error


def _named(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
