"""Tasks that the server gives a site."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from fedmed.errors import JobError

MODELS = (
    *(SELECTED := "selected", LAST := "last", FIRST := "first", RELEASED := "released"),
    *(SITE_BEST := "own", ALONE := "alone"),
)
CARRIED = {"tensors", "extras"}  # of a task: what is not a plain value
MAY_BE_NONE = {"private_round", "site_index", "site_count"}


@dataclass
class Task:
    """One request of the server to one site.

    Attributes:
        name: ``train`` (validate the received model if asked, then train), ``metadata`` (compute what other sites need
            of it, see :mod:`fedmed.federation.exchange`), ``validate``, ``release`` (hand out private tensors, if the
            site allows it), ``evaluate`` or ``fingerprint`` (say what the images are like).
        round: counted from 0; a ``validate`` or ``evaluate`` task carries the round whose aggregate it sends.
        tensors: name -> tensor, only what the site's role receives. Its first task may add the starting values of
            private tensors, when the job starts from a checkpoint.
        steps: optimizer steps to train, unless ``epochs`` says how many.
        bundle_digest: hash of the server's bundle; the site refuses to work with another one.
        study: digest of the server's study; the site refuses to work for another one.
        private_round: the round whose private state continues: the site's last update that entered the model; None
            for a site that never took part.
        keep_rounds: further rounds whose private state must stay on disk: the selected model's, and those of the round
            to which the run would go back.
        validate: whether to score the received model on the site's validation list.
        model: which model an ``evaluate`` task is about: ``selected``, ``last`` or ``first``, which it carries,
            ``released``, the selected one with layers that sites released, or the site's ``own`` best, or the one that
            it has trained ``alone``, which the site has kept.
        earlier: jobs that a resumed run continues -> rounds that were done when each ended, oldest first; the site's
            own state of those rounds lies in their folders.
        epochs: passes over the site's training images; the site counts its steps.
        reuse: the tensors were sent with this round's ``metadata`` task, and the site has kept them.
        site_index, site_count: the site's place, from 0, among the sites of the job that train, by their names, and how
            many these are; no index for a site that does not train, and neither where nobody says it.
        keep: of a ``release`` task: whether the mean of what sites release is to be kept for an export.
        extras: what a method gets besides the model: numbers, tensors, and lists and mappings of them.
    """

    name: str
    round: int
    total_rounds: int
    tensors: dict[str, Tensor]
    steps: int = 0
    bundle_digest: str = ""
    study: str = ""
    private_round: int | None = None
    keep_rounds: list[int] = field(default_factory=list)
    validate: bool = False
    model: str = SELECTED
    earlier: dict[str, int] = field(default_factory=dict)
    epochs: float | None = None
    reuse: bool = False
    site_index: int | None = None
    site_count: int | None = None
    keep: bool = False
    extras: dict[str, Any] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        """Everything but tensors and extras, as plain JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in CARRIED}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], tensors: dict[str, Tensor], extras: Mapping[str, Any] | None = None
    ) -> "Task":
        """Inverse of :meth:`config`; unknown keys of a newer server are ignored.

        Raises:
            JobError: a number is missing or is not one, or there is no such model; rounds and models become names of
                files and folders at the site, so nothing else may.
        """
        known = {f.name for f in fields(cls)} - CARRIED
        values = {key: value for key, value in config.items() if key in known}
        _check(values)
        try:
            return cls(tensors=tensors, extras=dict(extras or {}), **values)
        except TypeError as error:
            raise JobError(f"the task is incomplete ({error}); do server and site use the same FedMed?") from error


def _check(values: Mapping[str, Any]) -> None:
    """-1 is the starting model, which no round has aggregated."""
    least = {"round": -1, "total_rounds": 0, "steps": 0, "private_round": -1, "site_index": 0, "site_count": 1}
    for key in (key for key in least if key in values):
        if not _is_count(values[key], least[key]) and not (key in MAY_BE_NONE and values[key] is None):
            raise JobError(f"the task's '{key}' is {values[key]!r}; it must be a whole number of at least {least[key]}")
    epochs = values.get("epochs")
    if epochs is not None and (type(epochs) not in (int, float) or not 0 < epochs < math.inf):
        raise JobError(f"the task's 'epochs' is {epochs!r}; it must be a number above 0")
    if (model := values.get("model", MODELS[0])) not in MODELS:
        raise JobError(f"the task's 'model' is {model!r}; it must be one of {', '.join(MODELS)}")
    rounds = values.get("keep_rounds", [])
    if not isinstance(rounds, (list, tuple)) or not all(_is_count(round, -1) for round in rounds):
        raise JobError(f"the task's 'keep_rounds' is {rounds!r}; it must be a list of whole numbers of at least -1")


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least
