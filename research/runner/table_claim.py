"""Claims in a table's YAML of what it is expected to show, each of a kind that is named by its class."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from pydantic import model_validator

from fedmed.errors import JobError
from fedmed.settings.yaml_model import YamlModel
from research.runner.label_scores import LabelScores
from research.runner.patient_scores import PatientScores
from research.runner.score_kinds import ScoreKind
from research.runner.yaml_models import build_named

if TYPE_CHECKING:  # which shows what claims are judged by
    from research.runner.table_layout import ShownArm

ALPHA = 0.05
P_COLUMN = "p (Holm)"  # its cell is written once all tests of a table are known


class Verdict(StrEnum):
    """Verdict on a claim, or on one finding alone."""

    HOLDS = "✓"
    SEEN_BEFORE = "◇"  # as ✓, of a claim that was chosen after numbers of the same data had been seen
    CONTRARY = "✗"
    DIRECTION = "direction"
    OPEN = "n.s."
    REPORTED = "reported"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class ClaimFinding:
    """One thing that was looked at for a claim. Equal ones of two claims are one test."""

    title: str  # of the section of ``claims.md`` that it is a row of
    cells: tuple[tuple[str, str], ...]  # (heading, cell) of this row, without seeds and outcome
    seeds: tuple[float, ...] = ()  # of two arms compared: difference of each seed, above 0 as claimed
    record: tuple[tuple[str, Any], ...] = ()  # (column, value) of its row of ``comparisons.csv``, unrounded
    p: float | None = None  # before any adjustment; None where there is no test
    direction: float = 0.0  # a number with the sign that the test speaks for
    verdict: Verdict | None = None  # the outcome of what is not judged by p and seeds
    p_holm: float | None = None  # p adjusted over all tests of the table
    too_few: str = ""  # ``4 videos cannot tell``, where no outcome of so many has a p below 0.05

    @property
    def outcome(self) -> Verdict:
        """``✓``, ``✗``, ``direction`` or ``n.s.`` of this finding alone."""
        n, agreeing, against = signs(self.seeds).values()
        if self.verdict is not None:
            return self.verdict
        if self.p_holm is None:
            return Verdict.DIRECTION if agreeing == n and not self.too_few else Verdict.OPEN
        if self.p_holm < ALPHA and self.direction > 0 and agreeing == n:
            return Verdict.HOLDS
        return Verdict.CONTRARY if self.p_holm < ALPHA and self.direction < 0 and against == n else Verdict.OPEN


def signs(seeds: Sequence[float]) -> dict[str, int]:
    """Numbers of seeds, of those with the claimed sign, and of those with the other one."""
    agreeing, against = sum(value > 0 for value in seeds), sum(value < 0 for value in seeds)
    return {"n_seeds": len(seeds), "seeds_agreeing": agreeing, "seeds_against": against}


@dataclass(frozen=True)
class Evidence:
    """Evidence by which claims are judged."""

    frame: pd.DataFrame  # the table of scores
    kinds: Mapping[str, ScoreKind]  # names of the table's scores -> how units become one
    sites: Mapping[str, str]  # the table's names of sites -> those in the scores
    data: str = ""  # name of the data
    arms: "Sequence[ShownArm]" = ()  # of the table

    @cached_property
    def patients(self) -> PatientScores:
        """Scores of all patients, and without each."""
        return PatientScores(self.frame, self.kinds)

    @cached_property
    def labels(self) -> LabelScores:
        """Scores of several labels at once, where sites send their counts."""
        return LabelScores(self.frame, self.arms, self.sites)


class TableClaim(YamlModel, ABC):
    """Base of all kinds of claims."""

    rule: ClassVar[str]  # what the verdicts mean, for the reader of claims.md

    id: int | str
    text: str
    report: bool = False  # numbers only, no verdict
    chosen_after: list[str] = []  # names of data whose numbers had been seen when the claim was chosen

    @abstractmethod
    def uses(self) -> Mapping[str, Collection[str]]:
        """Names of the table's that it speaks of: each ``arm``, ``row``, ``site`` and ``score``."""

    @abstractmethod
    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        """All that it stands or falls with; empty where an arm was not run: a part of it is not judged as the whole.

        Raises:
            DataError: two arms of a comparison cannot be paired.
        """


class ArmPair(YamlModel):
    """The arm ``better`` is above the arm ``worse``; where is said by its kind."""

    better: str
    worse: str

    @model_validator(mode="after")
    def _differ(self) -> "ArmPair":
        if self.better == self.worse:
            raise ValueError(f"'{self.better}' is compared with itself; name two arms")
        return self


class BetterClaim(TableClaim):
    """One arm is better than another, in every comparison that is named."""

    holds: list[Any]  # pairs of arms

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"arm": [arm for pair in self.holds for arm in (pair.better, pair.worse)]}


def read_claims(content: Sequence[Any], kind: str | None, known: Mapping[str, Collection[str]]) -> list[TableClaim]:
    """Read a table's claims and make sure, before anything runs, that they can be judged.

    Args:
        content: the YAML's list.
        kind: path of the class of those that name none.
        known: every ``arm``, ``row``, ``site`` and ``score`` that the claims may use.

    Raises:
        JobError: a malformed claim, an id twice, or an unknown name; names the claim.
    """
    claims: list[TableClaim] = []
    for place, each in enumerate(content, start=1):
        named = each.get("id", f"{place} of the list") if isinstance(each, Mapping) else f"{place} of the list"
        claim = build_named(TableClaim, each, f"claim {named}", kind)
        for what, names in claim.uses().items():
            if unknown := [name for name in names if name not in known[what]]:
                article = "an" if what == "arm" else "a"
                there = ", ".join(known[what])
                raise JobError(f"claim {named}: '{unknown[0]}' is not {article} {what}; there are: {there}")
        if str(claim.id) in [str(one.id) for one in claims]:
            raise JobError(f"claim {claim.id} is there twice; give each its own id")
        claims.append(claim)
    return claims
