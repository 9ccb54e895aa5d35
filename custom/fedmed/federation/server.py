"""What happens in one round at the server. FLARE's controller and the in-process loop both call this."""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import update_norm
from fedmed.aggregation.clipping import check_bound
from fedmed.aggregation.rule import ServerRule
from fedmed.errors import Aborted, FedMedError, JobError, RoundFailed, StateError, UpdateRefused
from fedmed.federation.applied_rule import AppliedRule
from fedmed.federation.exchange import Exchange
from fedmed.federation.open_round import OpenRound, TaskMaker, UpdateCheck
from fedmed.federation.progress import Stream
from fedmed.federation.run_record import RunRecord, bare_record, round_record, run_description
from fedmed.federation.selection import EarlyStopping, MeanOfRounds, ModelSelection
from fedmed.federation.server_continuation import ServerContinuation
from fedmed.federation.server_training import ServerTraining
from fedmed.federation.told_numbers import CollapseGuard, ToldNumbers, UsualNorms, ranges_of
from fedmed.jobs.plan import Plan
from fedmed.jobs.role_sharing import RolePolicies
from fedmed.jobs.rule_spec import load_rule, rule_spec
from fedmed.kinds.find_kind import load_kind
from fedmed.messages.answers import Extras, Update
from fedmed.messages.task import Task
from fedmed.methods.find_method import load_method
from fedmed.methods.method import Method
from fedmed.recovery.model_store import ModelStore
from fedmed.recovery.saved_state import START
from fedmed.settings.server import load_server

log = logging.getLogger("fedmed.server")
Save = Callable[[Mapping[str, Tensor], Mapping[str, Any], bool], None]


class Server:
    """The server's side of a federation.

    Args:
        plan: sites, roles, rounds.
        store: builds the starting model.
        rule: turns a round's updates into new global tensors.
        policies: what each role receives and sends.
        folder: the job's folder at the server.
        max_norm: largest accepted L2 norm of an update, or None.
        save: called with (tensors, meta, is_best) when a model is to be kept.
        method: whose guards watch the run.
        study: digest of the study, which sites must have too.
    """

    def __init__(
        self,
        plan: Plan,
        store: ModelStore,
        rule: ServerRule,
        policies: RolePolicies,
        folder: Path,
        max_norm: float | None = None,
        save: Save | None = None,
        method: Method | None = None,
        study: str = "",
    ) -> None:
        self.plan, self.store, self.policies = plan, store, policies
        self.applied = AppliedRule(rule, plan)
        self.check_update = UpdateCheck(plan, policies, self.applied, max_norm)
        self.tensors, self.score = store.initial, store.bundle.score
        self.tasks = TaskMaker(plan, store, policies, study)
        self.save = save or store.save
        self.record, self.continuation = RunRecord(folder), ServerContinuation(self, folder)
        self.exchange = Exchange(plan)
        self.guard = CollapseGuard((method or Method()).guards()) if plan.collapse_guard else None
        scoring = plan.of_role("supervised") if plan.select != "last" else ()
        self.selection = ModelSelection(scoring, self.score, store.bundle.calibration, plan.select == "best")
        self.newest = MeanOfRounds(plan.mean_rounds if plan.select == "mean" else 0)
        self.usual = UsualNorms(plan.max_norm_ratio)
        kind = load_kind(store.bundle.kind, f"bundle '{store.bundle.name}': 'kind'")
        classes = [one.name for one in store.classes_learnt]
        self.told = ToldNumbers(plan, ranges_of(kind, method or Method(), self.score, classes))
        self.stopping = EarlyStopping(plan.patience, plan.min_rounds)
        self.first_round = 0  # a resumed run begins later
        self.rounds = plan.rounds  # of the whole run; fewer when it ends early
        self.round = OpenRound(START)  # none has begun
        self.model_round = START  # the round that aggregated the current model
        self.counted: dict[str, int] = {}  # site -> rounds in which its update moved the model
        self.last_round: dict[str, int] = {}  # site -> round of its last update that entered the model
        self.lock = threading.Lock()  # FLARE delivers results from several threads
        self.failed_in_a_row = 0
        self.stream: Stream = lambda name, value, step: None  # receives what the server has for TensorBoard
        self.started = time.monotonic()

    @classmethod
    def from_args(
        cls,
        controller: Mapping[str, Any],
        aggregator: Mapping[str, Any],
        store: ModelStore,
        folder: Path,
        save: Save | None = None,
        app: Path | None = None,
        allowed: Collection[str] | None = None,
        study: str = "",
        kit: Path | None = None,
    ) -> "Server":
        """Build a server from what a job says of its plan and its aggregation, and resume if it says so.

        Args:
            controller: plain arguments of :class:`fedmed.jobs.plan.Plan`.
            aggregator: class path and arguments of the rule, and what roles share.
            store, folder, save: see above.
            app: the server's app folder, where a resumed job may carry its state; None = where ``store`` keeps models.
            allowed: class paths outside FedMed's own rooms that a job may name; None = those of the server's settings.
            study: digest of the study.
            kit: the server's kit, whose settings name the images of a server that trains.

        Raises:
            FedMedError: the job trains at the server, which lacks what that needs.
            JobError: arguments that are unknown or contradict each other, or those of another run than the resumed one.
            StateError: the state of the job to resume is missing or damaged.
        """
        check_bound("max_norm", max_norm := aggregator.get("max_norm"))
        try:
            plan = Plan(**controller)
        except TypeError as error:
            raise JobError(f"the job's server arguments are wrong: {error}") from error
        allowed = load_server().allowed_classes if allowed is None else allowed
        rule = load_rule(rule_spec(aggregator), allowed)
        method = load_method(plan.method, allowed) if plan.method else None
        policies = RolePolicies(store.initial, store.groups, plan, aggregator)
        server = cls(plan, store, rule, policies, folder, max_norm, save, method, study)
        server.applied.check(policies, server.tensors, max_norm)
        if method and (said := method.server_training()) is not None:
            machine = load_server(kit, plan.sites)
            server.applied.training = ServerTraining(said, store, plan, policies, machine, folder)
        server.continuation.start(aggregator, app)
        if server.applied.training:
            server.applied.training.check(server.tensors, server.first_round)
        server.record.start(**run_description(server, controller, aggregator))
        return server

    def ends_before(self, round: int) -> bool:
        """Whether the run ends before this round, because its models do not become better."""
        if not self.stopping.over(round):
            return False
        self.rounds = round
        return True

    def exchanges(self, round: int) -> bool:
        """Whether a round begins with what sites tell one another.

        What they told once stays at the server while it runs. A resumed run asks again where a site needs it.
        """
        new = any(site not in self.last_round for site in self.plan.participants(round))
        return self.plan.exchanges(round) or (new and self.exchange.once and not self.exchange.values)

    def asks_before_scoring(self) -> bool:
        """Whether sites that never train need what others told, and a resumed run does not have it."""
        return bool(self.plan.told_when_scored) and self.exchange.once and not self.exchange.values

    def metadata_tasks(self, round: int) -> dict[str, Task]:
        """Start a round in which sites learn from one another: site -> its first task."""
        self._begin(round)
        self.round.awaits_training = self.exchange.open = True
        tasks = {site: self.task("metadata", site, round) for site in self.plan.asked(round)}
        self.round.sent(tasks)
        return tasks

    def take_metadata(self, answers: Mapping[str, Extras]) -> None:
        """Take the answers to :meth:`metadata_tasks`.

        Raises:
            JobError: nobody sent what no round can do without.
        """
        self.exchange.take(answers, self.round.number, self.plan.asked(self.round.number))

    def train_tasks(self, round: int) -> dict[str, Task]:
        """Start a round, or go on with one that began with :meth:`metadata_tasks`: site -> its task."""
        if not (self.round.awaits_training and self.round.number == round):
            self._begin(round)
        self.round.awaits_training = False
        tasks = {}
        for site in self.plan.participants(round):
            task = self.exchange.fill(self.task("train", site, round), site)
            tasks[site] = self.applied.fill(task, site)
        self.round.sent(tasks)
        return tasks

    def _begin(self, round: int) -> None:
        self.round = OpenRound(round)
        self.exchange.begin()
        self.applied.begin()

    def task(self, name: str, site: str, round: int) -> Task:
        """A task with the current model, for a site that goes on from its last accepted update."""
        trains = name in ("train", "metadata")
        model = self.applied.model_for(self.plan.sites[site], self.tensors) if trains else self.tensors
        last, chosen = self.last_round.get(site), self.selection.best_private.get(site)
        kept = {*self.continuation.needed_of(site), *([] if chosen is None else [chosen])}
        return self.tasks.make(name, site, round, model, last, sorted(kept))

    def accept(self, update: Update) -> None:
        """Check an update and keep it for the end of the round.

        Raises:
            UpdateRefused: names the site, the tensor and the reason; the round goes on without it.
        """
        with self.lock:
            try:
                norm = self.check_update(update, self.tensors, self.round)
                self.told.check(update)
            except UpdateRefused as error:
                self.round.refuse(error)
                raise
            update, wrong = self.told.held(update)
            self.round.take(update, norm, wrong)

    def fail(self, site: str, reason: str) -> None:
        """Note that a site answered with an error, or not at all."""
        with self.lock:
            if self.exchange.open:
                self.exchange.fail(site, reason)
            else:
                self.round.refused.setdefault(site, reason)
        log.warning("round %d: site '%s': %s", self.round.number, site, reason)

    def finish_round(self) -> None:
        """Score the model that this round started from, then aggregate.

        Raises:
            RoundFailed: fewer updates than required; the model is unchanged.
        """
        current = self.round
        self._refuse_unusual()
        updates = [current.updates[site] for site in sorted(current.updates)]
        for site in self.plan.participants(current.number):
            if site not in current.updates and site not in current.refused:
                self.fail(site, "no answer")
        score = self.select(current.number - 1, {u.site: u.metrics for u in updates}, updates)
        self.failed_in_a_row += 1
        try:
            self._aggregate(updates)
            self.failed_in_a_row = 0
        finally:
            self._record(updates, score)
            self.continuation.keep()

    def _refuse_unusual(self) -> None:
        """Once all have answered: refuse updates that are absurdly large beside the others."""
        current = self.round

        def model_norm(site: str) -> float:
            model = self.applied.model_for(self.plan.sites[site], self.tensors)
            return update_norm({name: model[name] for name in current.updates[site].tensors})

        for error in self.usual.refusals(current.norms, model_norm):
            current.drop(error)

    def _record(self, updates: list[Update], score: float | None) -> None:
        """Write the round down, and hand its numbers to TensorBoard."""
        current = self.round
        try:
            record = round_record(self, updates, score, not self.failed_in_a_row)
        except Exception:  # noqa: BLE001 - it describes what sites sent, and none of them may end the run by that
            log.exception("round %d cannot be described; its record holds only who took part", current.number)
            record = bare_record(self, updates, not self.failed_in_a_row)
        self.record.round(record)
        scalars = {f"updates_{n}/{site}": v for site, of_site in record["geometry"].items() for n, v in of_site.items()}
        scalars |= {f"server/{name}": value for name, value in self.applied.trained.items()}
        for name, value in scalars.items():
            if math.isfinite(value):
                self.stream(name, value, current.number)

    def check_labels(self) -> None:
        """Refuse to end a run well whose labelled sites brought nothing: its model has learnt from no label.

        Raises:
            RoundFailed: no update of a labelled site counted in any round, though the study has such sites.
        """
        labelled = self.plan.of_role("supervised")
        if labelled and not any(site in self.counted for site in labelled):
            others = ", ".join(sorted(self.counted)) or "nobody"
            last = "; ".join(f"'{site}': {self.round.refused[site]}" for site in labelled if site in self.round.refused)
            raise RoundFailed(
                f"no update of a site with labels ({', '.join(labelled)}) entered the model in any round, only those "
                f"of {others}: this is no model of the study. The last refusals: {last or 'none'}. Correct these "
                "sites, and run the job again"
            )

    def abort_by(self, asked: Callable[[], bool]) -> None:
        """Let the server's own training ask before each step whether the job was aborted."""
        if self.applied.training:
            self.applied.training.should_abort = asked

    def _aggregate(self, updates: list[Update]) -> None:
        round = self.round.number
        needed, asked = self.plan.needed(round), len(self.plan.participants(round))
        if len(updates) < needed:
            raise RoundFailed(
                f"round {round}: {len(updates)} of {asked} updates accepted, {needed} needed; the model is "
                f"unchanged. Refused: {self.round.refused}"
            )
        try:
            # It is saved before anything else changes: what cannot be kept does not count.
            self.tensors = self.applied.aggregate(self.tensors, updates, round, self._keep)
        except (RoundFailed, StateError, Aborted):
            raise
        except FedMedError as error:
            raise RoundFailed(f"round {round}: {error}; the model is unchanged") from error
        self.model_round = round
        self.newest.add(round, self.tensors)
        self.last_round |= {u.site: round for u in updates}
        self.usual.keep(self.round.norms)
        self.told.keep(updates)
        shares = self.applied.outcome.coefficients if self.applied.outcome else {}
        for site in (u.site for u in updates if shares.get(u.site, 1.0)):
            self.counted[site] = self.counted.get(site, 0) + 1

    def _keep(self, tensors: Mapping[str, Tensor]) -> None:
        self.save(tensors, {"round": self.round.number}, False)

    def select(
        self,
        round: int,
        metrics: Mapping[str, Mapping[str, float]],
        updates: Sequence[Update] = (),
        is_result: bool = False,
    ) -> float | None:
        """Offer the current model, the aggregate after ``round``, to the selection; return its mean score.

        Args:
            round: -1 is the starting model.
            metrics: site -> what it sent about that model.
            updates: of the round in which it did, if it trained.
            is_result: it is taken whatever its score is.
        """
        chosen, private = self.selection, self.last_round
        chosen.told = self.told.samples(updates)
        score, taken = chosen.offer(round, metrics, self.tensors, self.model_round, private, is_result)
        self.stopping.note(self.model_round, score, taken)
        if taken and chosen.best_tensors is not None:
            self.save(chosen.best_tensors, {"round": round, "score": score}, True)
        return score
