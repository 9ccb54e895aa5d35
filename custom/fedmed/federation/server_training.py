"""Training at the server: after the mean of a round, before its model is kept and sent."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.rule import Model
from fedmed.bundles.bundle import server_bundle
from fedmed.bundles.bundle_parser import initial_network, named_tensors, parsed, seed_everything
from fedmed.bundles.contract import SERVER_TRAINING, Use
from fedmed.class_paths import class_path
from fedmed.errors import BundleError, FedMedError, StateError, first_line
from fedmed.federation.opened_model import Progress, run_trainer
from fedmed.jobs.job import RolePolicies
from fedmed.jobs.study import Study
from fedmed.kinds.find_kind import check_bundle
from fedmed.messages.task import Task
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.moved_classes import FINISH, hint
from fedmed.recovery.model_store import ModelStore
from fedmed.seeds import derive_seed
from fedmed.settings.server import ServerFile
from fedmed.training.server_engine import HINT, ServerEngine, load_network
from fedmed.training.trainer import AbortHandler

log = logging.getLogger("fedmed.server")
NAME = "server"  # in progress and seeds


@dataclass(frozen=True)
class Trained:
    """Result of a round's training."""

    tensors: dict[str, Tensor]  # the next model; private tensors are those of the mean
    state: dict[str, Any]  # what must be kept, see :meth:`ServerTraining.state`
    facts: dict[str, float]  # for the run's record


class ServerTraining:
    """Trains the averaged model with the server's own images, by the engine that the bundle's overlay describes.

    The network is filled with the mean of what sites share and, for what stays at the sites, with tensors of the
    server's own. These, and all that the engine keeps, are written with the model and never sent.

    Args:
        said: by :meth:`fedmed.methods.method.Method.server_training`.
        store: the job's bundle and starting model, from which the server's own tensors start.

    Attributes:
        should_abort: asked before every step.

    Raises:
        BundleError: the bundle lacks what this needs.
        SiteConfigError: the server's settings name no images.
    """

    def __init__(
        self,
        said: Mapping[str, Any],
        store: ModelStore,
        study: Study,
        policies: RolePolicies,
        machine: ServerFile,
        folder: Path,
    ) -> None:
        self.bundle = server_bundle(store.bundle, said)
        check_bundle(self.bundle, Use(trains_mean=True))
        self.facts, self.threads = machine.facts(), machine.threads
        self.store, self.study, self.policies = store, study, policies
        self.progress = Progress(NAME, folder)
        self.should_abort: Callable[[], bool] = lambda: False
        self._kept: Mapping[str, Any] = {}

    def state(self) -> Mapping[str, Any]:
        """After the last good round: class of the ``engine``, its ``state``, and the server's ``private`` tensors."""
        return self._kept

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned.

        Raises:
            StateError: it is not a state of a server that trains.
        """
        if state and not all(isinstance(state.get(key), Mapping) for key in ("private", "state")):
            raise StateError("the kept state of the server's training is damaged; copy the run's folder again")
        self._kept = state

    def check(self, model: Model, round: int) -> None:
        """Look at the server's images, and whether what is kept fits, before anything trains.

        Raises:
            FedMedError: says what is wrong, and what to do.
        """
        with _set_threads(self.threads):
            self._open(model, round)[1].check()
        if self.store.checkpoint is None:
            log.warning("the server trains from random weights; name a pre-trained 'checkpoint' in the study")

    def train(self, mean: Model, round: int) -> Trained:
        """Train the mean of a round. Nothing is kept before :meth:`restore` is given the result's state.

        Raises:
            Aborted: the job was aborted.
            FedMedError: the training failed, or gave values that are not finite.
        """
        started, task = monotonic(), Task("train", round, self.study.rounds, {})
        try:
            with _set_threads(self.threads):
                trained = self._train(mean, task)
        except RuntimeError as error:  # of a library: memory, or shapes
            message = f"training at the server failed: {first_line(error)}"
            self.progress.event("error", task, message=message)
            raise FedMedError(message) from error
        except FedMedError as error:
            self.progress.event("error", task, message=str(error))
            raise
        facts = {"server_seconds": monotonic() - started, **trained.facts}
        self.progress.event("end", task, **facts)
        return Trained(trained.tensors, trained.state, facts)

    def _train(self, mean: Model, task: Task) -> Trained:
        network, engine = self._open(mean, task.round)
        self.progress.event("start", task, steps=engine.steps)
        done = 0

        def phase(trainer: Any, steps: int, name: str) -> dict[str, float]:
            nonlocal done
            seed_everything(derive_seed(self.store.seed, NAME, task.round, name))

            def report(step: int, steps: int, scalars: dict[str, float]) -> None:
                self.progress.event("step", task, step=done + step, steps=engine.steps, phase=name, **scalars)

            means = run_trainer(trainer, steps, self.should_abort, report, ())
            done += steps
            return means

        facts = engine.run(phase, AbortHandler(self.should_abort).check)
        after, shared = named_tensors(network), self._shared(mean, task.round)
        for name, tensor in after.items():
            if not all_finite(tensor):
                raise FedMedError(f"training at the server made tensor '{name}' NaN or infinite; use a lower rate")
        private = {name: tensor for name, tensor in after.items() if name not in shared}
        state = {"engine": class_path(engine), "state": engine.state_dict(), "private": private}
        return Trained({**mean, **{name: after[name] for name in shared}}, state, facts)

    def _open(self, mean: Model, round: int) -> tuple[torch.nn.Module, ServerEngine]:
        """The averaged network of a round, filled, and what trains it."""
        seeds = {name: derive_seed(self.store.seed, NAME, round, name) for name in ("sampling", "augmentation")}
        when = {"round": round, "rounds": self.study.rounds}
        seeded = {"seed": seeds["sampling"], "augment_seed": seeds["augmentation"]}
        parser = self.bundle.parser_without_site(**self.facts, **when, **seeded)
        network = initial_network(parser, self.store.seed)
        shared = self._shared(mean, round)
        private = {name: tensor for name, tensor in self._kept.get("private", {}).items() if name not in shared}
        load_network(network, {**mean, **private}, "private part")
        engine = parsed(parser, SERVER_TRAINING)
        path = class_path(engine)
        if not isinstance(engine, ServerEngine):
            raise BundleError(f"'{SERVER_TRAINING}' is {path}, which lacks methods of fedmed.training.server_engine")
        if (kept := self._kept.get("engine", path)) != path:
            other = f"the kept state of the server's training is of {kept}, this job's is {path}; {HINT}"
            raise StateError(hint(kept, FINISH) or other)
        engine.load_state_dict(self._kept.get("state", {}), self.store.initial)
        return network, engine

    def _shared(self, model: Model, round: int) -> set[str]:
        """Names of tensors that some site that trains receives in this round; the rest is private."""
        roles = self.study.sites.values()
        policies = [self.policies.of(role, round) for role in TRAINING_ROLES if role in roles]
        return {name for policy in policies for name in policy.received(model)}


@contextmanager
def _set_threads(threads: int) -> Iterator[None]:
    """Compute with this number of threads meanwhile: sums depend on it, and the process may have another."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
