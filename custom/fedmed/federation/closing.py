"""What the server does after the last round: score the last aggregate, test the selected model, write the result."""

import logging
import time
from collections.abc import Mapping

from fedmed.federation.messages import Task
from fedmed.federation.server import Server

log = logging.getLogger("fedmed.server")
Metrics = Mapping[str, Mapping[str, float]]  # site -> its scalars


class Closing:
    """The end of a federation.

    Args:
        server: a server whose training rounds are done.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.plan, self.selection = server, server.plan, server.selection
        self.last_tensors = server.tensors

    def validation_tasks(self) -> dict[str, Task]:
        """Labelled sites score the last aggregate, which no training round does."""
        last = self.plan.rounds - 1
        return {site: self.server.task("validate", site, last) for site in self.plan.of_role("supervised")}

    def finish_validation(self, metrics: Metrics) -> None:
        """Take the closing scores into the selection; the server then holds the selected model."""
        self.last_scores = {site: m["val_dice"] for site, m in sorted(metrics.items()) if "val_dice" in m}
        self.last_score = self.server.select(self.plan.rounds - 1, self.last_scores)
        if self.selection.best_tensors is not None:
            self.server.tensors = dict(self.selection.best_tensors)

    def evaluation_tasks(self, last: bool = False) -> dict[str, Task]:
        """The selected model, or the last aggregate, to every site that can be scored with it.

        With partial sharing only labelled sites have a trained private part; the others are left out, and that is said.
        """
        server, tasks, final, best = self.server, {}, self.plan.rounds - 1, self.selection.best_round
        round = final if last or best is None else best
        tensors = self.last_tensors if last else server.tensors
        private = server.last_round if last or best is None else server.best_private
        for site, role in self.plan.sites.items():
            if not server.policies.scorable(role, round):
                log.warning("site '%s' is not scored: it has no trained private layers under partial sharing", site)
                continue
            kept = server.best_private.get(site)
            tasks[site] = server.tasks.make("evaluate", site, round, tensors, private.get(site), kept)
            tasks[site].model = "last" if last else "selected"
        return tasks

    def finish(self, test: Metrics, last: Metrics | None = None) -> None:
        """Write the result of the run: test scores of the selected model and, if asked for, of the last aggregate."""
        chosen = self.selection
        result = {
            "best_round": chosen.best_round,
            "best_score": chosen.best_score if chosen.best_round is not None else None,
            "last_score": self.last_score,
            "validation": self.server.best_scores,
            "validation_last": self.last_scores,
            "selected_by": chosen.sites,
            "test": {site: dict(metrics) for site, metrics in sorted(test.items())},
            "seconds_total": time.monotonic() - self.server.started,
        }
        for site, metrics in result["test"].items():
            if metrics.get("n_cases"):
                scores = metrics["dice_mean"], metrics["dice_std"], metrics["n_cases"]
                log.info("%s: test Dice %.4f ± %.4f over %d cases", site, *scores)
        if last is not None:
            result["test_last"] = {site: dict(metrics) for site, metrics in sorted(last.items())}
        self.server.record.result(result)
