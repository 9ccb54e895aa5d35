"""Claims and layouts that are plain functions: their parameters, by name, are the settings that a table's YAML gives.

What a parameter names is in its annotation: ``rows: Rows``, ``low: Sites``, ``arm: Arm``. Unknown names are told before
anything runs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, create_model, model_validator

from research.runner.label_scores import VIEWS
from research.runner.patient_claims import PATIENT_RULE
from research.runner.round_history import read_histories
from research.runner.table_claim import ClaimFinding, Evidence, TableClaim, Verdict
from research.runner.table_layout import ShownArm, ShownTable, TableLayout

Arm = Annotated[str, "arm"]
Row = Annotated[str, "row"]
Arms = Annotated[list[str], Field(min_length=1), "arm"]
Rows = Annotated[list[str], Field(min_length=1), "row"]
Sites = Annotated[list[str], Field(min_length=1), "site"]
Score = Annotated[str | None, "score"]  # None = the table's first
Looked = tuple[str, str, Iterable[Any]]  # of what, the numbers in words, and what must be true, such as of every seed

SEED_RULE = """\
Claims about numbers hold if they do in every seed, or where they speak of a test or a distance, in the mean over the
seeds; ✗ if in no seed.
"""


class FunctionClaim(TableClaim):
    """Base of claims that are functions of what they are judged by."""

    function: ClassVar[Callable[..., Any]]
    of_function: ClassVar[Collection[str]]
    checks: ClassVar[Callable[..., None] | None] = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if checks := type(self).checks:
            checks(**self.given())
        return self

    def given(self) -> dict[str, Any]:
        """The settings."""
        return {name: getattr(self, name) for name in self.of_function}

    def uses(self) -> Mapping[str, Collection[str]]:
        found: dict[str, list[str]] = {}
        for name, field in type(self).model_fields.items():
            for what in (one for one in field.metadata if isinstance(one, str)):
                value = getattr(self, name)
                found.setdefault(what, []).extend([value] if isinstance(value, str) else value or [])
        return {what: [name for name in names if name not in VIEWS] for what, names in found.items()}

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        return list(type(self).function(evidence, **self.given()))


class SeedClaim(FunctionClaim):
    """Base of what some rows show without a test, from numbers of several labels."""

    rule: ClassVar[str] = SEED_RULE
    also: ClassVar[Sequence[str]] = ()  # rows without which there is nothing to look at, beside those that it names

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        named = [value for name, value in self.given().items() if name in ("rows", "than")]
        rows = [row for value in named for row in ([value] if isinstance(value, str) else value)]
        if not evidence.labels.have([*rows, *self.also]):
            return []
        return [
            ClaimFinding("Numbers", (("of", what), ("found", words)), found=outcome_of(list(map(bool, true))))
            for what, words, true in type(self).function(evidence.labels, **self.given())
        ]


class RoundClaim(FunctionClaim):
    """Base of what the rounds of some arms show; it must show in every seed."""

    rule: ClassVar[str] = PATIENT_RULE

    arms: Arms
    value: str | None = None  # metric that the nodes reported, as the table of scores calls it

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        histories = {arm: read_histories(evidence.frame, arm, self.value) for arm in self.arms}
        if not all(histories.values()):
            return []
        found = [(arm, *type(self).function(own, **self.given())) for arm, own in histories.items()]
        return [
            ClaimFinding("Rounds", (("arm", arm), ("found", words)), found=outcome_of(signs))
            for arm, words, signs in found
        ]


def about_seeds(
    *also: str,
) -> Callable[[Callable[..., Iterable[Looked]]], type[SeedClaim]]:
    """Make a claim of a function of :class:`LabelScores` that says what was looked at, part by part.

    Args:
        also: rows that it needs beside those that the YAML names.
    """

    def made(look: Callable[..., Iterable[Looked]]) -> type[SeedClaim]:
        kind: type[SeedClaim] = _made(look, SeedClaim)
        kind.also = also
        return kind

    return made


def about_rounds(look: Callable[..., tuple[str, list[bool]]]) -> type[RoundClaim]:
    """Make a claim of a function: seed -> history of an arm's rounds -> the numbers in words, what must be true of each
    seed; nothing where it was not measured.
    """
    kind: type[RoundClaim] = _made(look, RoundClaim)
    return kind


def judged_by(
    rule: str, check: Callable[..., None] | None = None
) -> Callable[[Callable[..., Iterable[ClaimFinding]]], type[FunctionClaim]]:
    """Make a claim of a function of :class:`Evidence` that returns its findings.

    Args:
        rule: what the verdicts mean, for the reader of claims.md.
        check: the settings; raises a ValueError where they do not go together.
    """

    def made(findings: Callable[..., Iterable[ClaimFinding]]) -> type[FunctionClaim]:
        kind: type[FunctionClaim] = _made(findings, FunctionClaim)
        kind.rule, kind.checks = rule, None if check is None else staticmethod(check)
        return kind

    return made


class FunctionLayout(TableLayout):
    """Base of layouts that are functions: of a :class:`ShownTable`, to the content of each file by its name."""

    function: ClassVar[Callable[..., dict[str, bytes]]]
    of_function: ClassVar[Collection[str]]
    files: ClassVar[Collection[str]]
    checks: ClassVar[Callable[..., None] | None] = None

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        if checks := type(self).checks:
            checks(arms, scores, **self.given())

    def names(self) -> set[str]:
        return set(self.files)

    def given(self) -> dict[str, Any]:
        """The settings."""
        return {name: getattr(self, name) for name in self.of_function}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        return type(self).function(shown, **self.given())


def layout(
    *files: str, check: Callable[..., None] | None = None
) -> Callable[[Callable[..., dict[str, bytes]]], type[FunctionLayout]]:
    """Make a layout of a function.

    Args:
        files: every file that it may write.
        check: arms, names of scores and the settings; raises a JobError where such a table cannot be shown.
    """

    def made(contents: Callable[..., dict[str, bytes]]) -> type[FunctionLayout]:
        kind: type[FunctionLayout] = _made(contents, FunctionLayout)
        kind.files, kind.checks = files, None if check is None else staticmethod(check)
        return kind

    return made


def outcome_of(signs: list[bool]) -> Verdict:
    """``✓`` where all is true, ``✗`` where nothing is."""
    if signs and all(signs):
        return Verdict.HOLDS
    return Verdict.CONTRARY if signs and not any(signs) else Verdict.OPEN


def _made(function: Callable[..., Any], base: type[Any]) -> Any:
    _, *settings = signature(function).parameters.values()
    fields: dict[str, Any] = {
        one.name: (one.annotation, ... if one.default is Parameter.empty else one.default) for one in settings
    }
    kind = create_model(function.__name__, __base__=base, __module__=function.__module__, **fields)
    own = {"__doc__": function.__doc__, "function": staticmethod(function), "of_function": tuple(fields)}
    for name, value in own.items():
        setattr(kind, name, value)
    return kind
