"""Choice of the model that is a run's result, and of the round after which a run ends early."""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.sharing import classify, maximum
from fedmed.bundles.score import Score
from fedmed.recovery.checkpoint import OfSelection
from fedmed.training.calibration import calibrated, mean_temperature

log = logging.getLogger("fedmed.server")
FULL = 0.1  # of the usual number of training images, from which on a site's score counts in full


class ModelSelection:
    """Keep the aggregate with the best mean validation score over the labelled sites.

    A model is only compared when every selecting site scored it: means over different sites say nothing. A site that
    answers without a score where others send one has no validation list, or none of its scores can be, and does not
    select; what was best before is then what the others scored best.

    Sites count the same, but for one that told of less than a tenth of the usual number of training images (the lower
    median, which no single site can raise): it counts in proportion. So a site of a few cases does not choose alone.

    Args:
        sites: the labelled sites whose scores count, if they have a validation list.
        calibration: name of the tensor that is set to the sites' mean temperature; None: the bundle has none.
        chooses: whether a model that is offered is kept for its score; if not, scores are only told.

    Attributes:
        best_round: the aggregate after this round is the best so far; -1: the starting model, None: none was scored.
        best_model: the round that aggregated these; older than ``best_round`` where rounds between failed.
        best_private: site -> round of the private state with which it was scored.
        best_scores: each labelled site's score of it.
        images: site -> training images that it told of at the start; a site that tells of none counts as the smallest.
        temperature: to which it is calibrated; None: it is not.
    """

    def __init__(
        self, sites: Collection[str], score: Score, calibration: str | None = None, chooses: bool = True
    ) -> None:
        self.sites, self.score, self.calibration, self.chooses = sorted(sites), score, calibration, chooses
        self.best_round: int | None = None
        self.best_score = -math.inf
        self.best_tensors: Mapping[str, Tensor] | None = None
        self.best_model = -1
        self.best_private: Mapping[str, int] = {}
        self.best_scores: Mapping[str, float] = {}
        self.images: Mapping[str, int] = {}
        self.temperature: float | None = None

    def scores(self, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Site -> its validation score, of what sites sent about a model."""
        name = self.score.validation
        return {site: sent[name] for site, sent in sorted(metrics.items()) if name in sent}

    def mean(self, scores: Mapping[str, float]) -> float | None:
        """Mean over the selecting sites; None if one of them sent no score."""
        if not self.sites or any(site not in scores for site in self.sites):
            return None
        weights = score_weights(self.sites, self.images)
        return sum(weights[site] * scores[site] for site in self.sites) / sum(weights.values())

    def offer(
        self,
        round: int,
        metrics: Mapping[str, Mapping[str, float]],
        tensors: Mapping[str, Tensor],
        model_round: int,
        private: Mapping[str, int],
        is_result: bool = False,
    ) -> tuple[float | None, bool]:
        """Keep a model if its score is the best; on a tie the earlier one stays.

        Args:
            round: it is the aggregate after this round; -1 is the starting model.
            metrics: site -> what it sent about the model.
            model_round: the round that aggregated them.
            private: site -> round of the private state that it was scored with.
            is_result: it is kept whatever its score is.

        Returns:
            Its mean score, and whether it is kept.
        """
        scores = self.scores(metrics)
        scored = scores.keys() & self.sites
        without = [site for site in self.sites if scored and site in metrics and site not in scored]
        for site in without:
            text = "site '%s' scores no model: it has no 'validation' list, or its score cannot be; models are chosen "
            log.warning(f"{text}without it", site)
            self.sites.remove(site)
        if without and self.scored:
            self.best_score = self.mean(self.best_scores) or -math.inf
        score = self.mean(scores)
        better = self.chooses and score is not None and score > self.best_score
        if not (better or is_result):
            return score, False
        if better:
            text = "the model after round %d is the best so far: mean validation %s %.4f"
            log.info(text, round, self.score.label, score)
        self.best_round, self.best_model, self.best_score = round, model_round, -math.inf if score is None else score
        self.best_private, self.best_scores = dict(private), scores
        self.keep(tensors, mean_temperature(metrics, self.sites))
        return score, True

    @property
    def scored(self) -> bool:
        """True where the model that is kept has a mean score."""
        return math.isfinite(self.best_score)

    def keep(self, tensors: Mapping[str, Tensor], temperature: float | None) -> None:
        """Hold the tensors of the best model, calibrated."""
        self.temperature, self.best_tensors = temperature, calibrated(tensors, self.calibration, temperature)

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` goes on, with the model of ``best_model``."""
        plain: dict[str, Any] = {
            "best_round": self.best_round,
            "best_model": self.best_model,
            "temperature": self.temperature,
        }
        plain |= {"best_private": dict(self.best_private), "best_scores": dict(self.best_scores)}
        return {**plain, "best_score": self.best_score if self.scored else None}

    def restore(self, state: OfSelection, models: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Inverse of :meth:`state`."""
        self.best_round, self.best_model = state.best_round, state.best_model
        self.best_score = -math.inf if state.best_score is None else state.best_score
        self.best_private, self.best_scores = dict(state.best_private), dict(state.best_scores)
        self.keep(models[state.best_model], state.temperature)


def score_weights(sites: Collection[str], images: Mapping[str, int]) -> dict[str, float]:
    """Return how much each site's score counts in the choice of a model, above 0 and at most 1.

    Args:
        images: site -> training images that it told of at the start.
    """
    known = [images[site] for site in sites if images.get(site)]
    if not known:
        return dict.fromkeys(sites, 1.0)
    enough = FULL * median_low(known)
    return {site: min(1.0, (images.get(site) or min(known)) / enough) for site in sites}


class EarlyStopping:
    """Counts models in a row that labelled sites scored no better than an earlier one.

    A round's model is scored in the round that follows. A round that failed, or whose model was not scored by all
    labelled sites, says nothing and is not counted.

    Args:
        patience: models without a better mean validation score after which the run ends; None = never.

    Attributes:
        waited: models in a row that were not better.
        scored: round that aggregated the model scored last, -1 for the starting model; None: none was scored.
        reason: why the run ended, in words; None while it goes on.
    """

    def __init__(self, patience: int | None = None, min_rounds: int = 0) -> None:
        self.patience, self.min_rounds = patience, min_rounds
        self.waited = 0
        self.scored: int | None = None
        self.reason: str | None = None

    def note(self, model_round: int, score: float | None, better: bool) -> None:
        """Take a score into account.

        Args:
            score: mean validation score; None where a labelled site sent none.
            better: whether no model before was as good.
        """
        if score is None or model_round == self.scored:
            return
        self.scored, self.waited = model_round, 0 if better else self.waited + 1

    def over(self, round: int) -> bool:
        """Tell whether ``round`` is not trained any more, and log it."""
        if self.patience is None or round < self.min_rounds or self.waited < self.patience:
            return False
        what = "model was" if self.waited == 1 else f"{self.waited} models in a row were"
        self.reason = f"the last {what} not better than the best one before; 'patience' is {self.patience}"
        log.info("the training ends after %d rounds: %s", round, self.reason)
        return True

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` goes on."""
        return {"waited": self.waited, "scored": self.scored}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start."""
        self.waited, self.scored = state.get("waited", 0), state.get("scored")


class MeanOfRounds:
    """Keeps the last aggregates, for their mean as the result of a run.

    Stochastic weight averaging (Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
    UAI 2018, arXiv 1803.05407), with a round's aggregate in place of an epoch's model. BatchNorm statistics are
    averaged as the other tensors are; that paper computes them anew, which needs images.

    Args:
        rounds: how many are kept; 0: none, and there is no mean.

    Attributes:
        models: round -> its aggregate, the oldest first; at most ``rounds`` of them.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.models: dict[int, Mapping[str, Tensor]] = {}

    def add(self, round: int, model: Mapping[str, Tensor]) -> None:
        """Keep a round's aggregate, and forget the oldest one where there are too many."""
        if self.rounds:
            self.models[round] = model
        while len(self.models) > self.rounds:
            del self.models[min(self.models)]

    def state(self) -> list[int]:
        """Rounds whose models :meth:`restore` needs."""
        return sorted(self.models)

    def restore(self, state: Sequence[int], models: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Inverse of :meth:`state`; ``models``: round -> its aggregate."""
        for round in state:
            self.add(round, models[round])

    def mean(self) -> dict[str, Tensor] | None:
        """Return name -> tensor; None where nothing is kept. Computed in float64, in the order of the rounds."""
        kept = [self.models[round] for round in sorted(self.models)]
        return {name: _mean(name, [model[name] for model in kept]) for name in kept[0]} if kept else None


def _mean(name: str, tensors: Sequence[Tensor]) -> Tensor:
    kind, last = classify(name, tensors[-1]), tensors[-1]
    if kind == "constant":
        return last
    if kind == "counter":
        return maximum(torch.zeros_like(last), tensors)
    total = torch.zeros(last.shape, dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(last.dtype)
