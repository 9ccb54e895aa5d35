"""Scores that a site keeps: of its own best model, and of models that it has scored before."""

import logging
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from fedmed.bundles.bundle import Bundle
from fedmed.messages.task import Task
from fedmed.recovery.site_state import BEST_MODEL, START, SiteState
from fedmed.training.calibration import calibrated, mean_temperature

log = logging.getLogger("fedmed.site")


class OwnBest:
    """Keeps that model on the site's disk (Yang et al. 2021, Algorithm 1: the best model of each client).

    The paper's clients validate the global model as they receive it, before they train. So do these: what is kept is
    the received model with the site's own private layers, not what the site makes of it. It is calibrated by the
    site's own list. Nothing of it leaves the site but its scores.
    """

    def __init__(self, site: str, bundle: Bundle, state: SiteState, name: str = BEST_MODEL) -> None:
        self.site, self.bundle, self.state, self.name = site, bundle, state, name
        self._score: float | None = None  # of the one that is kept; None: not looked up yet

    def offer(self, task: Task, tensors: Mapping[str, Tensor], scores: Mapping[str, float]) -> None:
        """Keep a model if its score is the site's best; on a tie the earlier one stays.

        Args:
            task: with which it came, to train or to validate.

        Raises:
            StateError: it cannot be written, or the one before cannot be read.
        """
        score, round = scores[self.bundle.score.validation], task.round - (task.name == "train")
        if self._score is None:
            self._score = self.state.best(self.name).get("score", -math.inf)
        if round > START and score <= self._score:  # a run's first model counts, whatever an earlier run left here
            return
        temperature = mean_temperature({self.site: scores}, [self.site])
        kept = calibrated(tensors, self.bundle.calibration, temperature)
        self.state.keep_best(round, score, kept, self.name)
        self._score = score
        title = "the site's own best" if self.name == BEST_MODEL else "the best of those that the site trains alone"
        log.info("%s: the model after round %d is %s so far", self.site, round, title)


class EarlierScores:
    """Scores of the models that a site has tested in this job, while its process lasts."""

    def __init__(self) -> None:
        self._scores: dict[str, tuple[dict[str, float], Path]] = {}

    def again(self, digest: str, folder: Path) -> dict[str, float] | None:
        """The scores of a network that was tested before, whose files are copied; None for a new one."""
        metrics, before = self._scores.get(digest, ({}, folder))
        if not metrics or not before.is_dir():
            return None
        if before != folder:
            shutil.rmtree(folder, ignore_errors=True)  # of a test of another model
            shutil.copytree(before, folder)
        log.info("the model was tested before: %s is a copy of %s", folder.name, before.name)
        return dict(metrics)

    def keep(self, digest: str, metrics: Mapping[str, float], folder: Path) -> None:
        """Remember a test whose files lie in a folder."""
        self._scores = {known: scored for known, scored in self._scores.items() if scored[1] != folder}  # overwritten
        self._scores[digest] = dict(metrics), folder
