"""Rounds of a job in a table of scores: weights of the aggregate and what the nodes reported."""

from dataclasses import dataclass
from statistics import fmean

import numpy as np
import pandas as pd

from research.runner.score_table import ROUNDS, selected


@dataclass(frozen=True)
class RoundHistory:
    """Good rounds of one run, nodes in the arm's order."""

    shares: pd.Series  # node -> its share of the training images, (K,)
    weights: np.ndarray  # coefficients of the aggregate, (T, K)
    reported: np.ndarray | None  # number that each node reported, (T, K); None where one was not


def read_histories(frame: pd.DataFrame, arm: str, value: str | None) -> dict[int, RoundHistory]:
    """Seed -> what its rounds recorded, of arms whose model several nodes made; ``value`` is what nodes reported."""
    rows = selected(frame, arm=arm, list=ROUNDS).astype({"unit": str, "site": str, "metric": str})
    return {int(seed): _history(part, value) for seed, part in rows.groupby("seed")}


def thirds(values: np.ndarray) -> tuple[float, float]:
    """Means of the first and the last third, at least one value each."""
    n = max(1, len(values) // 3)
    return fmean(values[:n]), fmean(values[-n:])


def _history(rows: pd.DataFrame, value: str | None) -> RoundHistory:
    images = selected(rows, metric="images").set_index("site")["value"]

    def table(metric: str) -> np.ndarray:
        part = selected(rows, metric=metric)
        wide = part.pivot(index="unit", columns="site", values="value")
        return np.asarray(wide.reindex(part["unit"].unique(), columns=images.index), float)

    weights, reported = table("weight"), None if value is None else table(value)
    complete = reported is not None and reported.shape == weights.shape and np.isfinite(reported).all()
    return RoundHistory(images / images.sum(), weights, reported if complete and len(weights) else None)
