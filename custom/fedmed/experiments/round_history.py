"""What the rounds of a job recorded, read from the table of scores."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedmed.experiments.score_table import ROUNDS, selected


@dataclass(frozen=True)
class RoundHistory:
    """Good rounds of one run, nodes in the arm's order.

    Attributes:
        nodes: names, (K,).
        images: training images of each node, (K,).
        weights: coefficients of the aggregate, (T, K).
        reported: number that each node reported, (T, K); None where one was not.
    """

    nodes: tuple[str, ...]
    images: np.ndarray
    weights: np.ndarray
    reported: np.ndarray | None


def read_histories(frame: pd.DataFrame, arm: str, value: str | None) -> dict[int, RoundHistory]:
    """Seed -> what its rounds recorded, of arms whose model several nodes made."""
    rows = selected(frame, arm=arm, list=ROUNDS)
    return {int(seed): _history(own, value) for seed, own in rows.groupby("seed")}


def _history(rows: pd.DataFrame, value: str | None) -> RoundHistory:
    rows = rows.astype({"unit": str, "site": str, "metric": str})
    images = selected(rows, metric="images")
    nodes = list(images["site"])

    def table(metric: str) -> np.ndarray:
        own = selected(rows, metric=metric)
        wide = own.pivot(index="unit", columns="site", values="value").reindex(columns=nodes)
        return wide.reindex(own["unit"].unique()).to_numpy(float)

    weights, reported = table("weight"), None if value is None else table(value)
    complete = reported is not None and reported.shape == weights.shape and np.isfinite(reported).all()
    measured = reported if complete and len(weights) else None
    return RoundHistory(tuple(nodes), images["value"].to_numpy(), weights, measured)
