"""Claims about the rounds of a job: weights of the aggregate and what the nodes reported."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedmed.experiments.claim_findings import ClaimFinding, Verdict
from fedmed.experiments.patient_claims import PATIENT_RULE
from fedmed.experiments.round_history import RoundHistory, read_histories
from fedmed.experiments.table_claim import Evidence, TableClaim


@dataclass(frozen=True)
class RoundFinding(ClaimFinding):
    """What a claim about rounds found for one arm.

    Attributes:
        arm: name.
        words: the numbers.
        found: the outcome.
        n_seeds: runs.
    """

    title: ClassVar[str] = "Rounds"
    head: ClassVar[tuple[str, ...]] = ("claim", "arm", "found", "alone")
    p: ClassVar[None] = None

    arm: str
    words: str
    found: str
    n_seeds: int

    def outcome(self, p_holm: float | None) -> str:
        return self.found

    def cells(self, p_holm: float | None, outcome: str) -> tuple[str, ...]:
        return self.arm, self.words, self.found


class RoundClaim(TableClaim):
    """Base of what the rounds of some arms show; it must show in every seed.

    Attributes:
        arms: whose rounds.
        value: metric that the nodes reported, as the table of scores calls it; None = none is looked at.
    """

    rule: ClassVar[str] = PATIENT_RULE

    arms: Annotated[list[str], Field(min_length=1)]
    value: str | None = None

    def arm_names(self) -> list[str]:
        return list(self.arms)

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        histories = {arm: read_histories(evidence.frame, arm, self.value) for arm in self.arms}
        if not all(histories.values()):
            return []
        found = [(arm, *self.look(histories[arm]), len(histories[arm])) for arm in self.arms]
        return [RoundFinding(arm, words, _outcome(signs), n) for arm, words, signs, n in found]

    @abstractmethod
    def look(self, histories: Mapping[int, RoundHistory]) -> tuple[str, list[bool]]:
        """The numbers in words, and what must be true of every seed; nothing where it was not measured."""


class NodeWeight(RoundClaim):
    """The mean weight of a node is below its share of the images.

    Attributes:
        node: its place among the arm's, from 1.
    """

    node: Annotated[int, Field(ge=1)]

    def look(self, histories: Mapping[int, RoundHistory]) -> tuple[str, list[bool]]:
        place, parts, signs = self.node - 1, [], []
        for seed, history in histories.items():
            share = history.images[place] / history.images.sum()
            mean = float(history.weights[:, place].mean())
            lowered = int((history.weights[:, place] < share).sum())
            signs.append(mean < share)
            parts.append(f"seed {seed}: {mean:.3f} (below in {lowered} of {len(history.weights)} rounds)")
        first = histories[min(histories)]
        share = first.images[place] / first.images.sum()
        return f"{first.nodes[place]}: share of images {share:.3f}; mean weight, {'; '.join(parts)}", signs


class Slows(RoundClaim):
    """Learning slows down: the similarity r of a node's models rises, and the weights of the nodes flatten.

    Looked at are the mean r over the nodes, and the largest less the smallest weight, in the first and the last third
    of the rounds (Dong & Voiculescu 2021).

    Attributes:
        value: the metric that is r.
    """

    value: str

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


def thirds(values: np.ndarray) -> tuple[float, float]:
    """Means of the first and the last third, at least one value each."""
    n = max(1, len(values) // 3)
    return fmean(values[:n]), fmean(values[-n:])


def _outcome(signs: list[bool]) -> str:
    if signs and all(signs):
        return Verdict.HOLDS
    return Verdict.CONTRARY if signs and not any(signs) else Verdict.OPEN
