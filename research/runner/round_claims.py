"""Claims about the rounds of a job: weights of the aggregate and what the nodes reported."""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from research.runner.patient_claims import PATIENT_RULE
from research.runner.score_table import ROUNDS, selected
from research.runner.table_claim import ClaimFinding, Evidence, TableClaim, Verdict


@dataclass(frozen=True)
class RoundHistory:
    """Good rounds of one run, nodes in the arm's order."""

    shares: pd.Series  # node -> its share of the training images, (K,)
    weights: np.ndarray  # coefficients of the aggregate, (T, K)
    reported: np.ndarray | None  # number that each node reported, (T, K); None where one was not


class RoundClaim(TableClaim):
    """Base of what the rounds of some arms show; it must show in every seed."""

    rule: ClassVar[str] = PATIENT_RULE

    arms: Annotated[list[str], Field(min_length=1)]
    value: str | None = None  # metric that the nodes reported, as the table of scores calls it

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"arm": self.arms}

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        histories = {arm: read_histories(evidence.frame, arm, self.value) for arm in self.arms}
        if not all(histories.values()):
            return []
        found = [(arm, *self.look(own)) for arm, own in histories.items()]
        return [
            ClaimFinding("Rounds", (("arm", arm), ("found", words)), found=outcome_of(signs))
            for arm, words, signs in found
        ]

    @abstractmethod
    def look(self, histories: Mapping[int, RoundHistory]) -> tuple[str, list[bool]]:
        """The numbers in words, and what must be true of every seed; nothing where it was not measured."""


class NodeWeight(RoundClaim):
    """The mean weight of a node is below its share of the images."""

    node: Annotated[int, Field(ge=1)]  # its place among the arm's, from 1

    def look(self, histories: Mapping[int, RoundHistory]) -> tuple[str, list[bool]]:
        parts, signs = [], []
        for seed, history in histories.items():
            share, weights = history.shares.iloc[self.node - 1], history.weights[:, self.node - 1]
            mean, lowered = float(weights.mean()), int((weights < share).sum())
            signs.append(bool(mean < share))
            parts.append(f"seed {seed}: {mean:.3f} (below in {lowered} of {len(weights)} rounds)")
        shares = histories[min(histories)].shares
        name, share = shares.index[self.node - 1], shares.iloc[self.node - 1]
        return f"{name}: share of images {share:.3f}; mean weight, {'; '.join(parts)}", signs


class Slows(RoundClaim):
    """Learning slows down: the similarity r of a node's models rises, and the weights of the nodes flatten.

    Looked at are the mean r over the nodes, and the largest less the smallest weight, in the first and the last third
    of the rounds (Dong & Voiculescu 2021).
    """

    value: str  # the metric that is r

    def look(self, histories: Mapping[int, RoundHistory]) -> tuple[str, list[bool]]:
        parts, signs = [], []
        for seed, history in histories.items():
            if history.reported is None:
                return "r was not measured", []
            spread = history.weights.max(1) - history.weights.min(1)
            (r0, r1), (s0, s1) = thirds(history.reported.mean(1)), thirds(spread)
            signs += [r1 > r0, s1 < s0]
            parts.append(f"seed {seed}: r {r0:.3f} → {r1:.3f}, spread of weights {s0:.3f} → {s1:.3f}")
        return f"first → last third of the rounds, {'; '.join(parts)}", signs


def read_histories(frame: pd.DataFrame, arm: str, value: str | None) -> dict[int, RoundHistory]:
    """Seed -> what its rounds recorded, of arms whose model several nodes made; ``value`` is what nodes reported."""
    rows = selected(frame, arm=arm, list=ROUNDS).astype({"unit": str, "site": str, "metric": str})
    return {int(seed): _history(own, value) for seed, own in rows.groupby("seed")}


def thirds(values: np.ndarray) -> tuple[float, float]:
    """Means of the first and the last third, at least one value each."""
    n = max(1, len(values) // 3)
    return fmean(values[:n]), fmean(values[-n:])


def _history(rows: pd.DataFrame, value: str | None) -> RoundHistory:
    images = selected(rows, metric="images").set_index("site")["value"]

    def table(metric: str) -> np.ndarray:
        own = selected(rows, metric=metric)
        wide = own.pivot(index="unit", columns="site", values="value")
        return np.asarray(wide.reindex(own["unit"].unique(), columns=images.index), float)

    weights, reported = table("weight"), None if value is None else table(value)
    complete = reported is not None and reported.shape == weights.shape and np.isfinite(reported).all()
    return RoundHistory(images / images.sum(), weights, reported if complete and len(weights) else None)


def outcome_of(signs: list[bool]) -> Verdict:
    """``✓`` where all is true, ``✗`` where nothing is."""
    if signs and all(signs):
        return Verdict.HOLDS
    return Verdict.CONTRARY if signs and not any(signs) else Verdict.OPEN
