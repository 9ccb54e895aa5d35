"""The order of a federation's work, the same on FLARE and in one process."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fedmed.errors import RoundFailed
from fedmed.federation.closing import Closing
from fedmed.federation.server import Server
from fedmed.messages.task import FIRST, LAST, SELECTED, Task

log = logging.getLogger("fedmed.server")
Ask = Callable[[Mapping[str, Task]], dict[str, Any]]


def run_federation(server: Server, ask: Ask, finish_round: Callable[[], object] | None = None) -> None:
    """Train all rounds, or fewer if the plan allows it and models do not become better.

    Then score the last aggregate and evaluate the selected model, the last, the starting one and each labelled site's
    own best, as far as the plan asks for it.

    Args:
        server: the server's side.
        ask: sends each site its task and waits; hands updates to ``server.accept`` and returns the other answers by
            site: metrics of validation and evaluation, a :class:`Release` of a release task, :class:`Extras` of a
            metadata task.
        finish_round: ends a round; ``server.finish_round`` by default.

    Raises:
        RoundFailed: too many failed rounds in a row, or the last one, or no labelled site contributed to any. The
            models saved so far stay.
    """
    for round in range(server.first_round, server.plan.rounds):
        if server.ends_before(round):
            break
        if server.exchanges(round):
            server.take_metadata(ask(server.metadata_tasks(round)))
        ask(server.train_tasks(round))
        try:
            (finish_round or server.finish_round)()
        except RoundFailed as error:
            log.error("%s", error)
            if server.failed_in_a_row >= server.plan.max_failed_rounds or round == server.plan.rounds - 1:
                raise
    if server.asks_before_scoring():
        server.take_metadata(ask(server.metadata_tasks(server.rounds - 1)))
    server.check_labels()
    closing = Closing(server)
    closing.finish_validation(ask(closing.validation_tasks()))
    plan, wanted = server.plan, {FIRST: server.plan.evaluate_first, LAST: server.plan.evaluate_last}
    others = {model: _test(closing, ask, model) for model, asked in wanted.items() if asked}
    test = _test(closing, ask, SELECTED) if plan.evaluate else {}
    closing.finish(test, others, ask(closing.own_tasks()) if plan.evaluate else {})


def _test(closing: Closing, ask: Ask, model: str) -> dict[str, dict[str, float]]:
    closing.take_release(ask(closing.release_tasks(model)), model)
    return ask(closing.evaluation_tasks(model))
