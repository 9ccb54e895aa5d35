"""The server's state across jobs: kept after every round, taken over by the job that resumes the run."""

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedmed.bundles.network import merge
from fedmed.recovery.model_store import LAST
from fedmed.recovery.same_run import check_same, config_of, find_state
from fedmed.recovery.saved_state import START, SavedState
from fedmed.recovery.server_state import ServerState

if TYPE_CHECKING:
    from fedmed.federation.server import Server

log = logging.getLogger("fedmed.server")


class ServerContinuation:
    """Keeps what a server knows beside the model, so that another job can go on from there.

    Args:
        server: the server.
        folder: the job's folder at the server.
    """

    def __init__(self, server: "Server", folder: Path) -> None:
        self.server, self.state = server, ServerState(folder)
        self.config: Mapping[str, Any] = {}
        self._good: dict[str, Any] = {}  # what was true after the last good round

    def start(self, aggregator: Mapping[str, Any], app: Path | None) -> None:
        """Begin a run, or take over the one that the job's ``resume`` names.

        Args:
            aggregator: plain arguments of the job's aggregator.
            app: the server's app folder; None = where the models are kept.

        Raises:
            JobError: the job differs from the one it resumes.
            StateError: that one's state is missing or damaged, or cannot be copied.
        """
        server = self.server
        self.config = config_of(server.plan, aggregator, server.store)
        self.state.remove()  # of an earlier run in the same folder
        if (id := server.plan.resume) is not None:
            self._take_over(id, find_state(id, app or server.store.folder, self.state.folder))

    def keep(self) -> None:
        """Write the state after a round. Of a failed one only the choice of a model counts: it will be repeated.

        Raises:
            StateError: it cannot be written; the older state stays.
        """
        server, chosen = self.server, self.server.selection
        if server.model_round == START:
            return  # no round was good, so there is nothing that the job itself does not say
        if not server.failed_in_a_row:
            guard = server.guard.state() if server.guard else {}
            self._good = {"round": server.model_round, "last_round": dict(server.last_round), "guard": guard}
            self._good |= {"norms": server.usual.state(), "told": server.told.state()}
            self._good |= {"counted": dict(server.counted)}
        rule = server.applied.kept(server.tensors)
        state = SavedState(
            **self._good,
            best_round=chosen.best_round,
            best_score=chosen.best_score if chosen.scored else None,
            best_model=chosen.best_model,
            best_private=chosen.best_private,
            best_scores=chosen.best_scores,
            temperature=chosen.temperature,
            seconds=time.monotonic() - server.started,
            config=self.config,
            earlier=server.tasks.earlier,
            rule=rule is not None,
            stopping=server.stopping.state(),
            newest=sorted(server.newest.models),
            references=server.exchange.references,
        )
        models: dict[int, Mapping[str, Tensor]] = {**server.newest.models, server.model_round: server.tensors}
        if chosen.best_tensors is not None:
            models.setdefault(chosen.best_model, chosen.best_tensors)
        self.state.save(state, models, Path(server.store.folder) / LAST, rule)

    def needed_of(self, site: str) -> list[int]:
        """Rounds whose private state a site must keep for the states that are kept here."""
        rounds = {kept.get(site) for state in self.state.kept for kept in (state.last_round, state.best_private)}
        return sorted(round for round in rounds if round is not None)

    def forget(self) -> None:
        """The run is finished: nothing continues it."""
        self.state.remove()

    def _take_over(self, id: str, old: ServerState) -> None:
        server, state = self.server, old.sound()
        check_same(state, self.config)
        server.tensors = self._model(old, state.round)
        server.applied.take_over(old.read_rule(state), server.tensors)
        server.model_round, server.first_round = state.round, state.round + 1
        for round in state.newest:
            server.newest.add(round, server.tensors if round == state.round else self._model(old, round))
        server.last_round = _without(state.last_round, server.plan.fresh)
        server.tasks.earlier = {**state.earlier, id: state.round + 1}
        server.started -= state.seconds
        if server.guard:
            server.guard.restore(state.guard)
        server.usual.restore(state.norms)
        server.told.restore(state.told)
        server.exchange.references = dict(state.references)
        server.counted = dict(state.counted) or dict.fromkeys(state.last_round, 1)  # of an earlier FedMed
        if state.best_round is not None and not self._lost(state.best_round):
            self._take_selection(old, state, state.best_round)
        log.info("the run of job '%s' goes on after its round %d", id, state.round)
        server.record.rounds(old.read_rounds(state.round))
        server.save(server.tensors, {"round": state.round}, False)
        self.keep()

    def _take_selection(self, old: ServerState, state: SavedState, best_round: int) -> None:
        server, chosen = self.server, self.server.selection
        chosen.best_model = state.best_model
        chosen.best_private = _without(state.best_private, server.plan.fresh)
        chosen.best_scores = dict(state.best_scores)
        server.stopping.restore(state.stopping)
        chosen.best_round = best_round
        chosen.best_score = -math.inf if state.best_score is None else state.best_score
        same = state.best_model == state.round
        model = server.tensors if same else self._model(old, state.best_model)
        chosen.keep(model, state.temperature)
        if chosen.best_tensors is not None:
            server.save(chosen.best_tensors, {"round": best_round, "score": state.best_score}, True)

    def _lost(self, best_round: int) -> bool:
        """Whether a site has lost private layers of the selected model, which then cannot be scored again."""
        plan, policies, names = self.server.plan, self.server.policies, self.server.store.initial
        lost = [s for s in plan.fresh if policies.of(plan.sites[s], best_round).private(names)]
        if lost:
            log.warning(
                "the choice of a model starts anew: the one of round %d needs private layers that %s lost",
                best_round,
                ", ".join(lost),
            )
        return bool(lost)

    def _model(self, old: ServerState, round: int) -> dict[str, Tensor]:
        initial = self.server.store.initial
        return dict(initial) if round == START else merge(initial, old.read_model(round), initial)


def _without(rounds: Mapping[str, int], sites: Any) -> dict[str, int]:
    return {site: round for site, round in rounds.items() if site not in sites}
