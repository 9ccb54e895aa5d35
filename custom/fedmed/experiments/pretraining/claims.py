"""What a table of pre-training arms is expected to show, read from its YAML.

    claims:
    - id: 1
      text: FedMoCo is above FedAvg
      holds: [{better: FedMoCo, worse: FedAvg, protocol: linear, fractions: [1]}]
    - id: 5
      text: The large node of one kind gets less weight than its share of images
      weights: {arms: [FedMoCo], node: 3}
    - id: 7
      text: Learning slows down and weights flatten
      slows: {arms: [FedMoCo]}

A line of ``holds`` may name ``metrics`` (default accuracy), ``test`` (internal), ``model`` (last) and ``tasks`` (all of
the data's). ``report: true`` shows the numbers and judges nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmed.errors import JobError
from fedmed.experiments.checks import is_whole
from fedmed.experiments.pretraining.arms import PROTOCOLS
from fedmed.experiments.pretraining.metrics import METRICS
from fedmed.experiments.pretraining.scores import MODELS, TESTS, Setting

KINDS = ("holds", "weights", "slows")


@dataclass(frozen=True)
class Pair:
    """One directional comparison, in every setting that its lists name.

    Attributes:
        better, worse: arms.
        protocol, fractions, metrics, test, model: settings.
        tasks: None = all.
    """

    better: str
    worse: str
    protocol: str
    fractions: Sequence[float]
    metrics: Sequence[str] = ("accuracy",)
    test: str = "internal"
    model: str = "last"
    tasks: Sequence[str] | None = None

    def settings(self, tasks: Sequence[str]) -> list[Setting]:
        return [
            Setting(task, self.test, self.protocol, fraction, self.model)
            for task in (tasks if self.tasks is None else self.tasks)
            for fraction in self.fractions
        ]


@dataclass(frozen=True)
class Claim:
    """A sentence and what it stands or falls with: ``pairs``, or something that the rounds of ``arms`` show.

    Attributes:
        id: its number or name.
        text: the sentence.
        kind: ``holds``, ``weights`` or ``slows``.
        pairs: comparisons of scores.
        arms: whose rounds are looked at.
        node: place of a node among the arm's, from 1.
        report: numbers only.
    """

    id: str
    text: str
    kind: str
    pairs: tuple[Pair, ...] = ()
    arms: tuple[str, ...] = ()
    node: int = 1
    report: bool = False


def read_claims(claims: Any, arms: Collection[str]) -> list[Claim]:
    """Read the YAML's list.

    Raises:
        JobError: a malformed claim, an id twice, or an arm that the table has not; names the claim.
    """
    if not isinstance(claims, list | tuple):
        raise JobError(f"claims are {type(claims).__name__}; write a list, each with id, text and one of {KINDS}")
    read = [_claim(content, f"claim {place}") for place, content in enumerate(claims, start=1)]
    ids = [claim.id for claim in read]
    if twice := [id for id in ids if ids.count(id) > 1]:
        raise JobError(f"claim {twice[0]} is there twice; give each its own id")
    for claim in read:
        for arm in (*claim.arms, *(side for pair in claim.pairs for side in (pair.better, pair.worse))):
            if arm not in arms:
                raise JobError(f"claim {claim.id}: '{arm}' is no arm; there are: {', '.join(arms)}")
    return read


def _claim(content: Any, where: str) -> Claim:
    kinds = [kind for kind in KINDS if isinstance(content, Mapping) and kind in content]
    if len(kinds) != 1 or not {"id", "text"} <= set(content) <= {"id", "text", "report", kinds[0]}:
        raise JobError(f"{where} is {content!r}; it needs id, text and one of {', '.join(KINDS)}, and may have report")
    own, where = content[kinds[0]], f"claim {content['id']}"
    common = {"id": str(content["id"]), "text": str(content["text"]), "kind": kinds[0]}
    common["report"] = content.get("report", False) is True
    if kinds[0] == "holds":
        if not isinstance(own, list) or not own:
            raise JobError(f"{where}: holds is {own!r}; write a list of comparisons, at least one")
        return Claim(**common, pairs=tuple(_pair(line, where) for line in own))
    if not isinstance(own, Mapping) or not own.get("arms") or not is_whole(own.get("node", 1), 1):
        raise JobError(f"{where}: {kinds[0]} is {own!r}; write {{arms: […]}}, and the node's place for 'weights'")
    return Claim(**common, arms=tuple(own["arms"]), node=own.get("node", 1))


def _pair(line: Any, where: str) -> Pair:
    try:
        pair = Pair(**line)
    except TypeError as error:
        raise JobError(f"{where}: {line!r} is no comparison: {error}") from error
    for key, values, known in (
        ("protocol", [pair.protocol], PROTOCOLS),
        ("metrics", pair.metrics, METRICS),
        ("test", [pair.test], TESTS),
        ("model", [pair.model], MODELS),
    ):
        if not isinstance(values, list | tuple) or not set(values) <= set(known):
            raise JobError(f"{where}: '{key}' is {values!r}; use {' or '.join(known)}")
    return pair
