"""What a table is expected to show: claims in its YAML, each of a kind that is named by its class."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar

import pandas as pd
from pydantic import model_validator

from fedmed.errors import JobError
from fedmed.experiments.patient_resampling import PatientResamples
from fedmed.experiments.score_kinds import ScoreKind
from fedmed.experiments.yaml_models import build_named
from fedmed.settings.yaml_model import YamlModel

ALPHA = 0.05
P_COLUMN = "p (Holm)"  # its cell is written once all tests of a table are known


class Verdict(StrEnum):
    """What is said of a claim, or of one finding alone."""

    HOLDS = "✓"
    CONTRARY = "✗"
    DIRECTION = "direction"
    OPEN = "n.s."
    REPORTED = "reported"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class ClaimFinding:
    """One thing that was looked at for a claim. Equal ones of two claims are one test.

    Attributes:
        title: of the section of ``claims.md`` that it is a row of.
        cells: (heading, cell) of this row, without seeds and outcome.
        seeds: difference of each seed, above 0 as claimed; none where it is not a difference of two arms.
        record: (column, value) of its row of ``comparisons.csv``, unrounded; none = no row.
        p: before any adjustment; None where there is no test.
        direction: a number with the sign that the test speaks for.
        found: the outcome of what is not judged by p and seeds.
        p_holm: p adjusted over all tests of the table.
    """

    title: str
    cells: tuple[tuple[str, str], ...]
    seeds: tuple[float, ...] = ()
    record: tuple[tuple[str, Any], ...] = ()
    p: float | None = None
    direction: float = 0.0
    found: Verdict | None = None
    p_holm: float | None = None

    @property
    def outcome(self) -> Verdict:
        """``✓``, ``✗``, ``direction`` or ``n.s.`` of this finding alone."""
        agreeing, against = signs(self.seeds)
        if self.found is not None:
            return self.found
        if self.p_holm is None:
            return Verdict.DIRECTION if agreeing == len(self.seeds) else Verdict.OPEN
        if self.p_holm < ALPHA and self.direction > 0 and agreeing == len(self.seeds):
            return Verdict.HOLDS
        contrary = self.p_holm < ALPHA and self.direction < 0 and against == len(self.seeds)
        return Verdict.CONTRARY if contrary else Verdict.OPEN


def signs(seeds: Sequence[float]) -> tuple[int, int]:
    """Numbers of seeds with the claimed sign, and with the other one."""
    return sum(value > 0 for value in seeds), sum(value < 0 for value in seeds)


@dataclass(frozen=True)
class Evidence:
    """What claims are judged by.

    Attributes:
        frame: the table of scores.
        kinds: names of the table's scores -> how units become one.
        sites: the table's names of sites -> those in the scores.
    """

    frame: pd.DataFrame
    kinds: Mapping[str, ScoreKind]
    sites: Mapping[str, str]

    @cached_property
    def resamples(self) -> PatientResamples:
        return PatientResamples(self.frame, self.kinds)


class TableClaim(YamlModel, ABC):
    """Base of all kinds of claims.

    Attributes:
        id: its number or name.
        text: the sentence.
        report: numbers only, no verdict.
    """

    rule: ClassVar[str]  # what the verdicts mean, for the reader of claims.md

    id: int | str
    text: str
    report: bool = False

    @abstractmethod
    def uses(self) -> Mapping[str, Collection[str]]:
        """Names of the table's that it speaks of: each ``arm``, ``site`` and ``score``."""

    @abstractmethod
    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        """All that it stands or falls with; empty where an arm was not run: a part of it is not judged as the whole.

        Raises:
            DataError: two arms of a comparison cannot be paired.
        """


class ArmPair(YamlModel):
    """The arm ``better`` is above the arm ``worse``; where is said by its kind.

    Attributes:
        better, worse: arms.
    """

    better: str
    worse: str

    @model_validator(mode="after")
    def _differ(self) -> "ArmPair":
        if self.better == self.worse:
            raise ValueError(f"'{self.better}' is compared with itself; name two arms")
        return self


class BetterClaim(TableClaim):
    """One arm is better than another, in every comparison that is named.

    Attributes:
        holds: the comparisons.
    """

    holds: list[Any]

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"arm": [arm for pair in self.holds for arm in (pair.better, pair.worse)]}


def read_claims(content: Sequence[Any], kind: str | None, known: Mapping[str, Collection[str]]) -> list[TableClaim]:
    """Read a table's claims and make sure, before anything runs, that they can be judged.

    Args:
        content: the YAML's list.
        kind: path of the class of those that name none.
        known: every ``arm``, ``site`` and ``score`` that the claims may use.

    Raises:
        JobError: a malformed claim, an id twice, or an unknown name; names the claim.
    """
    claims: list[TableClaim] = []
    for place, each in enumerate(content, start=1):
        named = each.get("id", f"{place} of the list") if isinstance(each, Mapping) else f"{place} of the list"
        claim = build_named(TableClaim, each, f"claim {named}", kind)  # type: ignore[type-abstract]  # a kind of it
        for what, names in claim.uses().items():
            if unknown := [name for name in names if name not in known[what]]:
                article = "an" if what == "arm" else "a"
                there = ", ".join(known[what])
                raise JobError(f"claim {named}: '{unknown[0]}' is not {article} {what}; there are: {there}")
        if str(claim.id) in [str(one.id) for one in claims]:
            raise JobError(f"claim {claim.id} is there twice; give each its own id")
        claims.append(claim)
    return claims
