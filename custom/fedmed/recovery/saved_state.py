"""What server and site keep of a run, as plain values, and where the jobs lie that a resumed run continues."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fedmed.files import RESUME_ROOT
from fedmed.jobs.job_meta import check_plain
from fedmed.settings.yaml_model import YamlModel

START = -1  # as a model's round: the starting model, which the job itself describes
Round = Annotated[int, Field(ge=START, lt=10**6)]


class SavedState(YamlModel):
    """A run after its last good round; later rounds that failed are repeated.

    A job may bring it, and its rounds become parts of paths at server and sites.

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
        counted: site -> rounds in which its update moved the model.
        told: site -> the counts that it told first.
        norms: site -> norms of its updates in the latest rounds.
        seconds: time that the run has taken.
        config: what must not change: plain arguments of the job, the bundle's digest and settings.
        earlier: earlier jobs of the run -> rounds that were done when each ended, oldest first.
        rule: whether the server's rule left something in ``round``.
        stopping: state of the early stopping, numbers of rounds.
        newest: rounds whose models' mean may be the result.
        references: the mean of what sites told of their images before training.
    """

    round: int = Field(ge=0, lt=10**6)
    last_round: Mapping[str, Round]
    best_round: Round | None = None
    best_score: float | None = None
    best_model: Round = START
    best_private: Mapping[str, Round] = {}
    best_scores: Mapping[str, float] = {}
    temperature: float | None = Field(None, gt=0)
    guard: Mapping[str, Any] = {}
    counted: Mapping[str, Annotated[int, Field(ge=1)]] = {}
    told: Mapping[str, Mapping[str, Annotated[int, Field(ge=1)]]] = {}
    norms: Mapping[str, Sequence[Annotated[float, Field(ge=0, allow_inf_nan=False)]]] = {}
    seconds: float = 0.0
    config: Mapping[str, Any] = {}
    earlier: Mapping[str, Round] = {}
    rule: bool = False
    stopping: Mapping[str, int | None] = {}
    newest: Sequence[Round] = ()
    references: Mapping[str, Any] = {}

    @model_validator(mode="after")
    def _knows_no_later_round(self) -> Self:
        of_sites = (*self.last_round.values(), *self.best_private.values())
        if max(*of_sites, *self.newest, self.best_model, START) > self.round:
            raise ValueError("it speaks of rounds after its own")
        return self

    @property
    def models(self) -> set[int]:
        """Rounds whose models the state needs."""
        return {self.round, *self.newest, self.best_model if self.best_round is not None else START} - {START}


def folder_of_job(id: str, folder: Path) -> Path:
    """Where another job kept what this one keeps in ``folder``.

    Args:
        id: of the other job.
        folder: ``<workspace>/<this job>/fedmed``; jobs of one site or server lie side by side. Where
            ``$FEDMED_RESUME_ROOT`` is set, ``id`` is a simulator's workspace below it.

    Raises:
        JobError: the id is not a plain name.
    """
    folder, id = Path(folder), check_plain(id)
    if root := os.environ.get(RESUME_ROOT):
        return Path(root, id, *folder.parts[-3:])  # <site>/simulate_job/fedmed
    return folder.parent.parent / id / folder.name


def jobs_with_state(round: int, earlier: Mapping[str, int]) -> list[str]:
    """Jobs that can hold a site's state of a round, the newest first.

    It was made by the first job that got beyond the round; later ones may hold copies. What a still earlier job has
    under that round's name was never taken into the model, and the round was repeated.

    Args:
        round: counted from 0.
        earlier: job -> rounds of the run that were done when it ended, oldest first.
    """
    return [id for id, done in reversed(list(earlier.items())) if round < done]
