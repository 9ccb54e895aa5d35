"""What is found for a claim, and what is said of it."""

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any, ClassVar

ALPHA = 0.05


class Verdict(StrEnum):
    """What is said of a claim, or of one finding alone."""

    HOLDS = "✓"
    CONTRARY = "✗"
    DIRECTION = "direction"
    OPEN = "n.s."
    REPORTED = "reported"
    NOT_RUN = "not run"


class ClaimFinding(ABC):
    """One thing that was looked at for a claim. Equal ones of two claims are one test.

    Attributes:
        title, head: of the section of ``claims.md`` that it is a row of.
        p: before any adjustment; None where there is no test.
        n_seeds: what it rests on.
    """

    title: ClassVar[str]
    head: ClassVar[tuple[str, ...]]
    p: float | None
    n_seeds: int

    @abstractmethod
    def outcome(self, p_holm: float | None) -> str:
        """``✓``, ``✗``, ``direction`` or ``n.s.`` of this finding alone."""

    @abstractmethod
    def cells(self, p_holm: float | None, outcome: str) -> tuple[str, ...]:
        """A row below ``head``, without the claim."""

    def record(self) -> dict[str, Any] | None:
        """Its row of ``comparisons.csv``, unrounded; None for none."""
        return None


class OverSeeds(ClaimFinding):
    """A difference of two arms, ``better`` - ``worse``, with that of every seed."""

    seed_differences: tuple[float, ...]

    @property
    def n_seeds(self) -> int:
        return len(self.seed_differences)

    @property
    def seeds_agreeing(self) -> int:
        """Seeds whose mean difference has the claimed sign."""
        return sum(difference > 0 for difference in self.seed_differences)

    @property
    def seeds_against(self) -> int:
        return sum(difference < 0 for difference in self.seed_differences)

    def clear(self, p_holm: float, direction: float) -> str:
        """The outcome where there is a test: ``direction`` is a number with the sign that the test speaks for."""
        if p_holm < ALPHA and direction > 0 and self.seeds_agreeing == self.n_seeds:
            return Verdict.HOLDS
        return (
            Verdict.CONTRARY
            if p_holm < ALPHA and direction < 0 and self.seeds_against == self.n_seeds
            else Verdict.OPEN
        )
