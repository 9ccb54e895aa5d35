"""A run after its last good round, as plain values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmed.jobs.job_id import check_plain

START = -1  # as a model's round: the starting model, which the job itself describes


@dataclass(frozen=True)
class SavedState:
    """A run after its last good round; later rounds that failed are repeated.

    Attributes:
        round: the last round whose updates were aggregated.
        last_round: site -> round of its last update in the model.
        best_round, best_score: of the selection; None: no model was scored.
        best_model: the round that aggregated the selected model's tensors; older than ``best_round`` where rounds
            between failed.
        best_private: site -> round of the private state with which the selected model was scored.
        best_scores: each labelled site's score of it.
        temperature: to which it is calibrated; None: it is not.
        guard: state of the collapse guard.
        seconds: time that the run has taken.
        config: what must not change: plain arguments of the job, the bundle's digest and settings.
        earlier: earlier jobs of the run -> rounds that were done when each ended, oldest first.
        rule: whether the server's rule left something in ``round``.
        stopping: state of the early stopping.
    """

    round: int
    last_round: Mapping[str, int]
    best_round: int | None = None
    best_score: float | None = None
    best_model: int = START
    best_private: Mapping[str, int] = field(default_factory=dict)
    best_scores: Mapping[str, float] = field(default_factory=dict)
    temperature: float | None = None
    guard: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)
    earlier: Mapping[str, int] = field(default_factory=dict)
    rule: bool = False
    stopping: Mapping[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> set[int]:
        """Rounds whose models the state needs."""
        return {self.round, self.best_model if self.best_round is not None else START} - {START}


def checked(state: SavedState) -> SavedState:
    """A job may bring a state, and its numbers become parts of paths at server and sites.

    Raises:
        TypeError, ValueError: it does not hold what a server writes.
    """
    rounds = [*state.last_round.values(), *state.best_private.values()]
    numbers = [state.round, state.best_model, state.best_round or 0, *rounds, *state.earlier.values()]
    if not all(type(number) is int and START <= number < 10**6 for number in numbers) or state.round < 0:
        raise ValueError("it holds rounds that are not rounds of a run")
    waited, scored = state.stopping.get("waited", 0), state.stopping.get("scored")
    if type(waited) is not int or not (scored is None or type(scored) is int):
        raise ValueError("its 'stopping' does not hold numbers of rounds")
    if type(state.rule) is not bool:
        raise ValueError("its 'rule' is not true or false")
    if state.temperature is not None and not 0 < float(state.temperature) < math.inf:
        raise ValueError("its 'temperature' is not a number above 0")
    if max(rounds, default=0) > state.round or state.best_model > state.round:
        raise ValueError("it speaks of rounds after its own")
    for id in state.earlier:
        check_plain(id)
    return state
