"""What a table is expected to show: claims in its YAML, each of a kind that is named by its class."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pandas as pd
from pydantic import model_validator

from fedmed.errors import JobError
from fedmed.experiments.claim_findings import ClaimFinding
from fedmed.experiments.patient_resampling import PatientResamples
from fedmed.experiments.score_kinds import ScoreKind
from fedmed.experiments.yaml_models import build_named
from fedmed.settings.yaml_model import YamlModel


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
    def arm_names(self) -> list[str]:
        """Arms that it speaks of."""

    @abstractmethod
    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        """All that it stands or falls with; empty where an arm was not run: a part of it is not judged as the whole.

        Raises:
            DataError: two arms of a comparison cannot be paired.
        """

    def check(self, sites: Collection[str], scores: Collection[str]) -> None:
        """Make sure that it uses none but the sites and scores of its table.

        Raises:
            JobError: it names another one.
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

    def arm_names(self) -> list[str]:
        return [arm for pair in self.holds for arm in (pair.better, pair.worse)]


def read_claims(
    content: Sequence[Any], kind: str | None, arms: Collection[str], sites: Collection[str], scores: Collection[str]
) -> list[TableClaim]:
    """Read a table's claims and make sure, before anything runs, that they can be judged.

    Args:
        content: the YAML's list.
        kind: path of the class of those that name none.
        arms, sites, scores: names that the claims may use.

    Raises:
        JobError: a malformed claim, an id twice, or an unknown name; names the claim.
    """
    claims = []
    for place, each in enumerate(content, start=1):
        named = each.get("id", f"{place} of the list") if isinstance(each, Mapping) else f"{place} of the list"
        claim = build_named(TableClaim, each, f"claim {named}", kind)
        if unknown := [arm for arm in claim.arm_names() if arm not in arms]:
            raise JobError(f"claim {named}: '{unknown[0]}' is not an arm; there are: {', '.join(arms)}")
        claim.check(sites, scores)
        claims.append(claim)
    ids = [str(claim.id) for claim in claims]
    if twice := [one for one in ids if ids.count(one) > 1]:
        raise JobError(f"claim {twice[0]} is there twice; give each its own id")
    return claims


def known(claim: TableClaim, what: str, names: Collection[str], allowed: Collection[str]) -> None:
    """Refuse a claim's name that its table does not have.

    Raises:
        JobError: names claim, name and what there is.
    """
    if unknown := [name for name in names if name not in allowed]:
        raise JobError(f"claim {claim.id}: '{unknown[0]}' is not a {what}; there are: {', '.join(allowed)}")
