"""A stage of an arm: a federated job that goes on with the model that the stage before left."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from fedmed.recovery.model_store import BEST, LAST
from research.runner.federated_training import FederatedTraining
from research.runner.job_step import JobStep, job_before, run_folder
from research.runner.stages import Place, StageStep

FILES = {"last": LAST, "selected": BEST}


class ContinuedTraining(FederatedTraining):
    """As federated training; part of the model starts as the stage before left it, and its scores stand for both.

    Attributes:
        takes: regular expressions of the tensors that are taken.
        model: of the ``last`` round, or the one that labelled sites ``selected``.
        blank: these tensors are 0 instead: a control that cannot see anything by them.
    """

    takes: Annotated[list[str], Field(min_length=1)]
    model: Literal["last", "selected"] = "last"
    blank: bool = False

    def steps(self, place: Place, before: StageStep | None) -> Sequence[StageStep]:
        before = job_before(self, place, before)
        turns = [replace(place, data=turn) for turn in place.data.turns() if turn.turn == before.turn]
        return [
            self._after(before, step, place)
            for turn in turns
            for step in self._starting(before, turn).steps_of_turn(turn)
        ]

    def _starting(self, before: JobStep, place: Place) -> "ContinuedTraining":
        """With the file to start from; of sites with local training, the one whose model that is, or all of them if it
        is none's, such as what was pre-trained on other images."""
        start = {"checkpoint": FILES[self.model], "checkpoint_tensors": self.takes}
        trained = before.job.study.of_role("supervised")
        local = [site for site in self.local if place.data.sites[site] in trained]
        return self.model_copy(update={"job": {**self.job, **start}, "local": local or self.local})

    def _after(self, before: JobStep, step: JobStep, place: Place) -> JobStep:
        folder = run_folder(place, step.job, step.sites, before.path, self.blank)
        return replace(step, path=folder, start=before, blank=self.blank)
