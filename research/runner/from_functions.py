"""Claims and layouts that are plain functions: their parameters, by name, are the settings that a table's YAML gives.

What a parameter names is in its annotation: ``rows: Rows``, ``low: Sites``, ``arm: Arm``. Unknown names are told before
anything runs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import ConfigDict, Field, create_model, model_validator

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

WITHOUT_SOURCE = ConfigDict(use_attribute_docstrings=False)  # pydantic would look long for the class's own source
Made = TypeVar("Made", bound="FromFunction")

SEED_RULE = """\
Claims about numbers hold if they do in every seed, or where they speak of a test or a distance, in the mean over the
seeds; ✗ if in no seed.
"""


class FromFunction:
    """Base of claims and layouts that are made of a function."""

    function: ClassVar[Callable[..., Any]]
    of_function: ClassVar[Collection[str]]  # its parameters but for the first: the settings
    checks: ClassVar[Callable[..., None]] = staticmethod(lambda *_, **__: None)  # raises where a table cannot be so

    def given(self) -> dict[str, Any]:
        """The settings."""
        return {name: getattr(self, name) for name in self.of_function}


class FunctionClaim(FromFunction, TableClaim):
    """Base of claims that are functions of what they are judged by."""

    model_config = WITHOUT_SOURCE

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        type(self).checks(**self.given())
        return self

    def named(self) -> dict[str, list[str]]:
        """``arm``, ``row``, ``site``, ``score`` -> those that the settings name."""
        named: dict[str, list[str]] = {}
        for name, field in type(self).model_fields.items():
            for what in (one for one in field.metadata if isinstance(one, str)):
                value = getattr(self, name)
                named.setdefault(what, []).extend([value] if isinstance(value, str) else value or [])
        return named

    def uses(self) -> Mapping[str, Collection[str]]:
        return {what: [name for name in names if name not in VIEWS] for what, names in self.named().items()}

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        return list(type(self).function(evidence, **self.given()))


class SeedClaim(FunctionClaim):
    """Base of what some rows show without a test, from numbers of several labels."""

    rule: ClassVar[str] = SEED_RULE
    also: ClassVar[Sequence[str]] = ()  # rows without which there is nothing to look at, beside those that it names

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        if not evidence.labels.have([*self.named().get("row", []), *self.also]):
            return []
        return [
            ClaimFinding("Numbers", (("of", what), ("found", words)), verdict=outcome_of(list(map(bool, true))))
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
        results = [(arm, *type(self).function(history, **self.given())) for arm, history in histories.items()]
        return [
            ClaimFinding("Rounds", (("arm", arm), ("found", words)), verdict=outcome_of(signs))
            for arm, words, signs in results
        ]


def about_seeds(*also: str) -> Callable[[Callable[..., Iterable[Looked]]], type[SeedClaim]]:
    """Make a claim of a function of :class:`LabelScores` that says what was looked at, part by part.

    Args:
        also: rows that it needs beside those that the YAML names.
    """

    return partial(_made, SeedClaim, also=also)


def about_rounds(look: Callable[..., tuple[str, list[bool]]]) -> type[RoundClaim]:
    """Make a claim of a function: seed -> history of an arm's rounds -> the numbers in words, what must be true of each
    seed; nothing where it was not measured.
    """
    return _made(RoundClaim, look)


def judged_by(
    rule: str, check: Callable[..., None] | None = None
) -> Callable[[Callable[..., Iterable[ClaimFinding]]], type[FunctionClaim]]:
    """Make a claim of a function of :class:`Evidence` that returns its findings.

    Args:
        rule: what the verdicts mean, for the reader of claims.md.
        check: the settings; raises a ValueError where they do not go together.
    """

    return partial(_made, FunctionClaim, check=check, rule=rule)


class FunctionLayout(FromFunction, TableLayout):
    """Base of layouts that are functions: of a :class:`ShownTable`, to the content of each file by its name."""

    model_config = WITHOUT_SOURCE
    files: ClassVar[Collection[str]]

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        type(self).checks(arms, scores, **self.given())

    def names(self) -> set[str]:
        return set(self.files)

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        contents: dict[str, bytes] = type(self).function(shown, **self.given())
        return contents


def layout(
    *files: str, check: Callable[..., None] | None = None
) -> Callable[[Callable[..., dict[str, bytes]]], type[FunctionLayout]]:
    """Make a layout of a function.

    Args:
        files: every file that it may write.
        check: arms, names of scores and the settings; raises a JobError where such a table cannot be shown.
    """

    return partial(_made, FunctionLayout, check=check, files=files)


def outcome_of(signs: list[bool]) -> Verdict:
    """``✓`` where all is true, ``✗`` where nothing is."""
    if signs and all(signs):
        return Verdict.HOLDS
    return Verdict.CONTRARY if signs and not any(signs) else Verdict.OPEN


def _made(
    base: type[Made], function: Callable[..., Any], check: Callable[..., None] | None = None, **of_kind: object
) -> type[Made]:
    """A kind whose fields are the function's parameters but for the first; ``of_kind``: what all of the kind have."""
    _, *settings = signature(function).parameters.values()
    fields: dict[str, Any] = {
        one.name: (one.annotation, ... if one.default is Parameter.empty else one.default) for one in settings
    }
    make: Any = create_model  # whose types know no base that is no model by itself
    kind: type[Made] = make(function.__name__, __base__=base, __module__=function.__module__, **fields)
    of_kind |= {"__doc__": function.__doc__, "function": staticmethod(function), "of_function": tuple(fields)}
    for name, value in (of_kind | ({"checks": staticmethod(check)} if check else {})).items():
        setattr(kind, name, value)
    return kind
