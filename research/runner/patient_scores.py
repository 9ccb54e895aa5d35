"""Scores of every trained model in the score table, of all patients and without each of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedmed.errors import DataError
from fedmed.training.jackknife import estimate, leave_one_out
from research.runner.score_kinds import Floats, ScoreKind
from research.runner.score_table import ROUNDS

SETTING = ("task", "list", "protocol", "fraction", "model")
TEXTS = {"task": "", "protocol": "", "fraction": "1", "draw": "0", "label": ""}  # of a table without such a column


@dataclass(frozen=True)
class Setting:
    """Way in which models are trained and tested; those of two arms are compared within one setting."""

    task: str  # what is asked
    list: str  # ``internal`` (the task's own site) or ``external``
    protocol: str  # how it was trained
    fraction: float  # share of the training labels
    model: str  # ``last``, or ``highest``: of the epoch with the highest accuracy on the internal test list


@dataclass(frozen=True)
class Block:
    """Units of one trained model."""

    values: Mapping[str, Floats]  # metric -> (n,)
    labels: np.ndarray  # (n,)
    patients: np.ndarray  # (n,)


class PatientScores:
    """Every model's scores; those of a task and list are of the same units, whatever the arm.

    Args:
        frame: the table of scores.
        kinds: name -> how units become a score.

    Raises:
        DataError: the same unit twice, or a model without some of the others' units.
    """

    def __init__(self, frame: pd.DataFrame, kinds: Mapping[str, ScoreKind]) -> None:
        self.kinds = kinds
        self._patients: dict[tuple[str, str], np.ndarray] = {}
        self._cache: dict[tuple[Any, ...], Floats] = {}
        self.blocks: dict[tuple[str, Setting], dict[int, dict[str, Block]]] = {}
        frame = frame[(frame["list"] != ROUNDS).to_numpy()]
        frame = frame.assign(**{name: value for name, value in TEXTS.items() if name not in frame.columns})
        keys = ["arm", "seed", "draw", *SETTING]
        for (arm, seed, draw, *at), rows in frame.groupby(keys, sort=False, observed=True):
            task, test, protocol, fraction, model = at
            setting = Setting(task, test, protocol, float(fraction), model)
            block = block_of(rows, f"{arm}, seed {seed}, {setting}, draw {draw}")
            self.blocks.setdefault((arm, setting), {}).setdefault(int(seed), {})[draw] = block

    def settings(self) -> list[Setting]:
        """All settings, in the order of the table."""
        return list(dict.fromkeys(setting for _, setting in self.blocks))

    def seeds(self, arm: str, setting: Setting) -> list[int]:
        return sorted(self.blocks.get((arm, setting), {}))

    def left_out(self, arm: str, setting: Setting, score: str) -> dict[int, Floats]:
        """Seed -> (1 + N,): the score of all N patients, then without each, averaged over the draws of labels."""
        return {
            seed: np.mean([self.of_one(arm, setting, seed, draw, score) for draw in draws], axis=0)
            for seed, draws in sorted(self.blocks[arm, setting].items())
        }

    def of_one(self, arm: str, setting: Setting, seed: int, draw: str, score: str) -> Floats:
        """One model's score of all patients, then without each, (1 + N,)."""
        key, test = (arm, setting, seed, draw, score), (setting.task, setting.list)
        block = self.blocks[arm, setting][seed][draw]
        if not np.array_equal(block.patients, self._patients.setdefault(test, block.patients)):
            raise DataError(f"{arm}, seed {seed}, {setting}: units of another list; test all on one")
        if key not in self._cache:
            values, kind = dict(block.values), self.kinds[score]
            self._cache[key] = leave_one_out(lambda w: kind.weighted(values, block.labels, w), block.patients)
        return self._cache[key]

    def span(self, score: str, left_out: Floats) -> tuple[float, float]:
        """95 % interval of a score, within its limits; NaN where the patients cannot tell."""
        interval = estimate(left_out)
        low, high = (np.nan, np.nan) if interval is None else np.clip(interval.interval(), *self.kinds[score].limits)
        return float(low), float(high)

    def models(self) -> pd.DataFrame:
        """A line a trained model: its scores with 95 % intervals over patients."""
        rows: list[dict[str, Any]] = []
        for (arm, setting), seeds in self.blocks.items():
            for seed, draws in sorted(seeds.items()):
                for draw, block in sorted(draws.items()):
                    row = {"arm": arm, "seed": seed, **vars(setting), "draw": draw, "n_cases": len(block.labels)}
                    for score in self.kinds:
                        values = self.of_one(arm, setting, seed, draw, score)
                        low, high = self.span(score, values)
                        row |= {score: float(values[0]), f"{score}_low": low, f"{score}_high": high}
                    rows.append(row)
        return pd.DataFrame(rows)


def block_of(rows: pd.DataFrame, where: str) -> Block:
    """Units of one model; the rows of each metric list the same units in the same order.

    Raises:
        DataError: a unit is there twice, or a metric is of other units; it begins with ``where``.
    """
    metrics = dict(list(rows.groupby("metric", sort=False, observed=True)))
    first = next(iter(metrics.values()))
    if first["unit"].duplicated().any():
        raise DataError(f"{where}: a unit is there twice")
    units = first["unit"].to_numpy()
    if not all(np.array_equal(part["unit"].to_numpy(), units) for part in metrics.values()):
        raise DataError(f"{where}: the metrics are of different units")
    values = {name: part["value"].to_numpy() for name, part in metrics.items()}
    owners = first["patient"] if "patient" in first else first["unit"]
    return Block(values, first["label"].to_numpy(), owners.to_numpy())
