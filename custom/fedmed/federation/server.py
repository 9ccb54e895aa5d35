"""One round at the server. FLARE's controller and the in-process loop both call this."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import check_bound, update_norm
from fedmed.bundles.bundle_parser import merge
from fedmed.errors import Aborted, FedMedError, RoundFailed, StateError, UpdateRefused
from fedmed.federation.exchange import Exchange
from fedmed.federation.fingerprint import Fingerprints
from fedmed.federation.open_round import OpenRound, TaskMaker, TransactionalAggregator, UpdateCheck
from fedmed.federation.opened_model import Stream
from fedmed.federation.reported_numbers import CollapseGuard, ReportedNumbers, UsualNorms, ranges_of
from fedmed.federation.run_record import RunRecord, bare_record, round_record, run_description
from fedmed.federation.selection import EarlyStopping, MeanOfRounds, ModelSelection
from fedmed.federation.server_training import ServerTraining
from fedmed.jobs.job import Job, RolePolicies
from fedmed.jobs.rule_spec import load_rule
from fedmed.kinds.find_kind import load_kind
from fedmed.messages.answers import Extras, Update
from fedmed.messages.task import Task
from fedmed.privacy.payload import describe
from fedmed.recovery.checkpoint import Checkpoint, Checkpoints, config_of, find_checkpoints
from fedmed.recovery.model_store import LAST, ModelStore
from fedmed.recovery.site_state import START
from fedmed.settings.server import load_server

log = logging.getLogger("fedmed.server")


class Server:
    """The server's side of a federation.

    Args:
        job: sites, roles, rounds, rule and method; resumes another one if the study says so.
        kit: the server's kit, whose settings name the images of a server that trains.

    Raises:
        FedMedError: the job trains at the server, which lacks what that needs.
        JobError: what the study says does not fit together, or it is another run than the one that it resumes.
        StateError: the state of the job to resume is missing or damaged.
    """

    def __init__(self, job: Job, store: ModelStore, folder: Path, kit: Path | None = None) -> None:
        check_bound("max_norm", job.study.max_norm)
        self.job, self.study, self.store = job, job.study, store
        study, method = job.study, job.method
        rule = load_rule(job.rule, job.allowed)
        self.policies = RolePolicies(job, store.initial, store.groups)
        self.policies.check()
        self.applied = TransactionalAggregator(rule, study)
        self.check_update = UpdateCheck(study, self.policies, self.applied)
        self.tensors, self.score = store.initial, store.bundle.score
        self.tasks = TaskMaker(job, store, self.policies)
        self.record, self.checkpoints = RunRecord(folder), Checkpoints(folder)
        self._good: dict[str, Any] = {}  # what parts were after the last good round
        self.exchange, self.fingerprints = Exchange(job), Fingerprints(job, store.bundle, folder)
        self.guard = CollapseGuard(method.guards()) if study.collapse_guard else None
        scoring = study.of_role("supervised") if study.select != "last" else ()
        self.selection = ModelSelection(scoring, self.score, store.bundle.calibration, study.select == "best")
        self.newest = MeanOfRounds(study.mean_rounds if study.select == "mean" else 0)
        self.usual = UsualNorms(study.max_norm_ratio)
        kind = load_kind(store.bundle.kind, f"bundle '{store.bundle.name}': 'kind'")
        classes = [one.name for one in store.classes_learnt]
        self.reported = ReportedNumbers(study, ranges_of(kind, method, self.score, classes))
        self.stopping = EarlyStopping(study.patience, study.min_rounds)
        self.first_round = 0  # a resumed run begins later
        self.rounds = study.rounds  # of the whole run; fewer when it ends early
        self.round = OpenRound(START)  # none has begun
        self.model_round = START  # the round that aggregated the current model
        self.counted: dict[str, int] = {}  # site -> rounds in which its update moved the model
        self.last_round: dict[str, int] = {}  # site -> round of its last update that entered the model
        self.lock = threading.Lock()  # FLARE delivers results from several threads
        self.failed_in_a_row = 0
        self.stream: Stream = lambda name, value, step: None  # receives what the server has for TensorBoard
        self.started = time.monotonic()
        self._start(folder, kit)

    def _start(self, folder: Path, kit: Path | None) -> None:
        """Check what cannot be checked in parts, begin the run or take over another one, and say what it is."""
        training, store = self.job.method.server_training(), self.store
        self.applied.check(self.policies, self.tensors)
        if training is not None:
            machine = load_server(kit, self.study.sites)
            self.applied.training = ServerTraining(training, store, self.study, self.policies, machine, folder)
        self.checkpoints.remove()  # of an earlier run in the same folder
        if (resume := self.study.resume) is not None:
            self._resume(resume.job, folder)
        if self.applied.training:
            self.applied.training.check(self.tensors, self.first_round)
        self.record.start(**run_description(self))

    @property
    def fresh(self) -> list[str]:
        """Sites whose private state of the resumed job is lost; they start it afresh."""
        return self.study.resume.fresh if self.study.resume else []

    def state(self) -> dict[str, Any]:
        """Progress of the run, see :class:`fedmed.recovery.checkpoint.OfServer`."""
        plain = {"round": self.model_round, "last_round": dict(self.last_round), "counted": dict(self.counted)}
        plain |= {"earlier": dict(self.tasks.earlier), "seconds": time.monotonic() - self.started}
        return {**plain, "network": describe(self.store.initial)}

    def keep(self) -> None:
        """Write a checkpoint after a round. Of a failed one only the choice of a model counts: it will be repeated.

        Raises:
            StateError: it cannot be written; the older one stays.
        """
        if self.model_round == START:
            return  # no round was good, so there is nothing that the job itself does not say
        if not self.failed_in_a_row:
            self._good = {"server": self.state(), "norms": self.usual.state(), "told": self.reported.state()}
            self._good["guard"] = self.guard.state() if self.guard else {}
        self._good["server"]["seconds"] = time.monotonic() - self.started
        chosen = self.selection
        states = {**self._good, "config": config_of(self.job, self.store), "selection": chosen.state()}
        states |= {"stopping": self.stopping.state(), "newest": self.newest.state()}
        states |= {"exchange": self.exchange.state(), "rule": self.applied.state()}
        models: dict[int, Mapping[str, Tensor]] = {**self.newest.models, self.model_round: self.tensors}
        if chosen.best_tensors is not None:
            models.setdefault(chosen.best_model, chosen.best_tensors)
        self.checkpoints.save(states, models, Path(self.store.folder) / LAST)

    def _resume(self, id: str, folder: Path) -> None:
        """Go on from the checkpoint of another job.

        Raises:
            JobError: this job differs from that one.
            StateError: its checkpoint is missing or damaged, or cannot be copied.
        """
        old = find_checkpoints(id, self.job.app or self.store.folder, folder)
        kept = old.sound()
        kept.check_same(config_of(self.job, self.store))
        initial = self.store.initial
        kept.check_network(initial)
        models = {round: merge(initial, old.read_model(round), initial) for round in kept.models}
        models[START] = dict(initial)
        self.tensors, self.model_round, self.first_round = models[kept.round], kept.round, kept.round + 1
        self.last_round, self.counted = self._without_fresh(kept.server.last_round), dict(kept.server.counted)
        self.tasks.earlier = {**kept.server.earlier, id: kept.round + 1}
        self.started -= kept.server.seconds
        self.applied.restore(kept.rule, self.tensors)
        self.newest.restore(kept.newest, models)
        self.usual.restore(kept.norms)
        self.reported.restore(kept.told)
        self.exchange.restore(kept.exchange)
        self.fingerprints.take_over(old.folder)
        if self.guard:
            self.guard.restore(kept.guard)
        if kept.selection.best_round is not None and not self._lost(kept.selection.best_round):
            self._choose_again(kept, models)
        log.info("the run of job '%s' goes on after its round %d", id, kept.round)
        self.record.rounds(old.read_rounds(kept.round))
        self.store.save(self.tensors, {"round": kept.round}, False)
        self.keep()

    def _choose_again(self, kept: Checkpoint, models: Mapping[int, Mapping[str, Tensor]]) -> None:
        chosen = self.selection
        chosen.restore(kept.selection, models)
        chosen.best_private = self._without_fresh(chosen.best_private)
        self.stopping.restore(kept.stopping)
        if chosen.best_tensors is not None:
            meta = {"round": chosen.best_round, "score": kept.selection.best_score}
            self.store.save(chosen.best_tensors, meta, True)

    def _without_fresh(self, rounds: Mapping[str, int]) -> dict[str, int]:
        return {site: round for site, round in rounds.items() if site not in self.fresh}

    def _lost(self, best_round: int) -> bool:
        """Tell whether a site has lost private layers of the selected model, which then cannot be scored again."""
        sites, names = self.study.sites, self.store.initial
        lost = [site for site in self.fresh if self.policies.of(sites[site], best_round).private(names)]
        if lost:
            log.warning(
                "the choice of a model starts anew: the one of round %d needs private layers that %s lost",
                best_round,
                ", ".join(lost),
            )
        return bool(lost)

    def ends_before(self, round: int) -> bool:
        """Tell whether the run ends before this round, because its models do not become better."""
        if not self.stopping.over(round):
            return False
        self.rounds = round
        return True

    def compare_sites(self, ask: Callable[[Mapping[str, Task]], Mapping[str, Any]]) -> None:
        """Ask the sites what their images are like, if the study wants it, and say what does not fit."""
        self.fingerprints.gather(ask, self.first_round)

    def exchanges(self, round: int) -> bool:
        """Tell whether a round begins with what sites tell one another.

        What they told once stays at the server while it runs. A resumed run asks again where a site needs it.
        """
        new = any(site not in self.last_round for site in self.study.participants(round))
        return self.job.exchange.in_round(round) or (new and self.exchange.once and not self.exchange.values)

    def asks_before_scoring(self) -> bool:
        """Tell whether sites that may be scored before they train need what others told, and a resumed run lacks it."""
        return bool(self.exchange.scoring_receivers) and self.exchange.once and not self.exchange.values

    def metadata_tasks(self, round: int) -> dict[str, Task]:
        """Start a round in which sites learn from one another: site -> its first task."""
        self._begin(round)
        self.round.awaits_training = self.exchange.open = True
        tasks = {site: self.task("metadata", site, round) for site in self.exchange.sites_at(round)}
        self.round.sent(tasks)
        return tasks

    def take_metadata(self, answers: Mapping[str, Extras]) -> None:
        """Take the answers to :meth:`metadata_tasks`.

        Raises:
            JobError: nobody sent what no round can do without.
        """
        self.exchange.take(answers, self.round.number, self.exchange.sites_at(self.round.number))

    def train_tasks(self, round: int) -> dict[str, Task]:
        """Start a round, or go on with one that began with :meth:`metadata_tasks`: site -> its task."""
        if not (self.round.awaits_training and self.round.number == round):
            self._begin(round)
        self.round.awaits_training = False
        tasks = {}
        for site in self.study.participants(round):
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
        model = self.applied.model_for(self.study.sites[site], self.tensors) if trains else self.tensors
        last, chosen = self.last_round.get(site), self.selection.best_private.get(site)
        kept = {*self.checkpoints.needed_of(site), *([] if chosen is None else [chosen])}
        return self.tasks.make(name, site, round, model, last, sorted(kept))

    def accept(self, update: Update) -> None:
        """Check an update and keep it for the end of the round.

        Raises:
            UpdateRefused: names the site, the tensor and the reason; the round goes on without it.
        """
        with self.lock:
            try:
                norm = self.check_update(update, self.tensors, self.round)
                self.reported.check(update)
            except UpdateRefused as error:
                self.round.refuse(error)
                raise
            update, wrong = self.reported.bounded(update)
            self.round.take(update, norm, wrong)

    def fail(self, site: str, reason: str) -> None:
        """Note that a site answered with an error, or not at all."""
        with self.lock:
            if self.fingerprints.fail(site, reason):
                return
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
        for site in self.study.participants(current.number):
            if site not in current.updates and site not in current.refused:
                self.fail(site, "no answer")
        score = self.select(current.number - 1, {u.site: u.metrics for u in updates}, updates)
        self.failed_in_a_row += 1
        try:
            self._aggregate(updates)
            self.failed_in_a_row = 0
        finally:
            self._record(updates, score)
            self.keep()

    def _refuse_unusual(self) -> None:
        """Once all have answered: refuse updates that are absurdly large beside the others."""
        current = self.round

        def model_norm(site: str) -> float:
            model = self.applied.model_for(self.study.sites[site], self.tensors)
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
        labelled = self.study.of_role("supervised")
        if labelled and not any(site in self.counted for site in labelled):
            others = ", ".join(sorted(self.counted)) or "nobody"
            last = "; ".join(f"'{site}': {self.round.refused[site]}" for site in labelled if site in self.round.refused)
            raise RoundFailed(
                f"no update of a site with labels ({', '.join(labelled)}) entered the model in any round, only those "
                f"of {others}: this is no model of the study. The last refusals: {last or 'none'}. Correct these "
                "sites, and run the job again"
            )

    def abort_by(self, aborted: Callable[[], bool]) -> None:
        """Let the server's own training ask before each step whether the job was aborted."""
        if self.applied.training:
            self.applied.training.should_abort = aborted

    def _aggregate(self, updates: list[Update]) -> None:
        round = self.round.number
        needed, participants = self.study.needed(round), len(self.study.participants(round))
        if len(updates) < needed:
            raise RoundFailed(
                f"round {round}: {len(updates)} of {participants} updates accepted, {needed} needed; the model is "
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
        self.reported.keep(updates)
        shares = self.applied.outcome.coefficients if self.applied.outcome else {}
        for site in (u.site for u in updates if shares.get(u.site, 1.0)):
            self.counted[site] = self.counted.get(site, 0) + 1

    def _keep(self, tensors: Mapping[str, Tensor]) -> None:
        self.store.save(tensors, {"round": self.round.number}, False)

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
            updates: of the round in which it did, if it trained.
            is_result: it is taken whatever its score is.
        """
        chosen, private = self.selection, self.last_round
        chosen.images = self.reported.samples(updates)
        score, taken = chosen.offer(round, metrics, self.tensors, self.model_round, private, is_result)
        self.stopping.note(self.model_round, score, taken)
        if taken and chosen.best_tensors is not None:
            self.store.save(chosen.best_tensors, {"round": round, "score": score}, True)
        return score
