"""When a run ends before its last round: no model has become better for a while."""

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("fedmed.server")


class EarlyStopping:
    """Counts models in a row that labelled sites scored no better than an earlier one.

    A round's model is scored in the round that follows. A round that failed, or whose model was not scored by all
    labelled sites, says nothing and is not counted.

    Args:
        patience: models without a better mean validation score after which the run ends; None = never.
        min_rounds: rounds that are trained in any case.

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
            model_round: the round that aggregated the model.
            score: mean validation score; None where a labelled site sent none.
            better: whether no model before was as good.
        """
        if score is None or model_round == self.scored:
            return
        self.scored, self.waited = model_round, 0 if better else self.waited + 1

    def over(self, round: int) -> bool:
        """Whether ``round`` is not trained any more; says so in the log."""
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
