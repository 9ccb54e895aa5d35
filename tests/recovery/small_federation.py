"""A federation whose sites are some lines that compute something from every bit that they receive and keep.

Hundreds of kills of it take seconds.
"""

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import torch

from fedmed.bundles.score import DICE
from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import FedMedError, UpdateRefused
from fedmed.federation import run_record as record
from fedmed.federation.server import Server
from fedmed.federation.workflow import run_federation
from fedmed.jobs.job import Job
from fedmed.messages.answers import Update
from fedmed.recovery.checkpoint import Checkpoints
from fedmed.recovery.model_store import BEST, LAST
from fedmed.recovery.site_state import SiteState
from fedmed.seeds import derive_seed
from fedmed.settings.server import load_server
from tests.federation.run_folder import Killed, read_lines, timeless

SITES = {"a": "supervised", "b": "supervised", "u": "unsupervised"}
ROUNDS, COUNTER = 5, "norm.num_batches_tracked"
MODEL = {"encoder.w": torch.tensor([0.5, -1.5]), "decoder.w": torch.tensor([[0.25]]), COUNTER: torch.tensor(0)}
PARTIAL = {"sharing": "head", "warm_start": {"rounds": 2, "sharing": "full"}}
# A rule with a state, values for the sites, and another model for those without labels.
METHOD = {"path": "fedmed.systems.covid_fssl.method.Consistency"}
STATEFUL = {"rule": {"path": "momentum_rule.ServerMomentum", "args": {"beta": 0.5}}}


class Store(SimpleNamespace):
    """Stands for a bundle's model, with real files."""

    def __init__(self, folder):
        reported = {"score": DICE, "calibration": None, "overlays": [], "parser": dict}
        bundle = SimpleNamespace(name="b_segmentation", digest="d1", version="1", kind="segmentation_3d", **reported)
        initial = {name: tensor.clone() for name, tensor in MODEL.items()}
        facts = {"seed": 0, "checkpoint": None, "taken": [], "groups": {"full": [], "head": [r"^decoder\."]}}
        super().__init__(bundle=bundle, initial=initial, folder=folder, classes_learnt=(), **facts)

    def describe(self):
        return {"digest": self.bundle.digest}

    def save(self, tensors, meta, best):
        save_tensors(self.folder / (BEST if best else LAST), {"model": dict(tensors), "meta": dict(meta)})


class Site:
    """Trains: every bit of what it receives and keeps counts, and so do site and round."""

    def __init__(self, name, folder, server):
        self.name, self.state, self.server = name, SiteState(folder, {"seed": 0}), server

    def train(self, task):
        self.state.earlier = task.earlier
        local = self.state.load(task.private_round)
        tensors = {**MODEL, **local.get("private", {}), **task.tensors}
        step = derive_seed(0, self.name, task.round) % 1000 / 1000 + float(local.get("momentum", 0.0))
        step += sum(float(torch.as_tensor(value).sum()) for value in task.extras.values())
        after = {n: t + 1 if n == COUNTER else torch.sin(3 * t + step) for n, t in tensors.items()}
        policy = self.server.policies.of(self.server.study.sites[self.name], task.round)
        for round in (kept := {task.private_round, *task.keep_rounds} - {None}):
            self.state.take_over(round)
        self.state.prune(kept)
        self.state.save(task.round, {n: after[n] for n in policy.private(after)}, momentum=math.sin(step))
        difference = {n: after[n] - tensors[n] for n in policy.sent(after)}
        metrics = {"val_dice": self.score(task)["val_dice"]} if task.validate else {}
        metrics["train_foreground_fraction"] = 0.5 if task.round == 4 else 0.02  # a collapse, seen by what was before
        return Update(self.name, task.round, difference, 2, 1, metrics)

    def score(self, task):
        self.state.earlier = task.earlier
        local = self.state.load(task.private_round).get("private", {})
        total = sum(float(t.double().sum()) for t in {**task.tensors, **local}.values())
        value = 0.5 + 0.5 * math.sin(100 * total)
        return {"val_dice": value, "dice_mean": value, "dice_std": 0.0, "n_cases": 1}

    validate = evaluate = score


class Run:
    """A workspace in which jobs of one federation lie side by side, as at a provisioned server and its sites."""

    def __init__(self, root, study=None, spoil=None, **changes):
        self.root, self.spoil = Path(root), spoil or (lambda update: update)
        self.study = {"name": "small", "bundle": "b_segmentation", "method": METHOD, "sites": SITES, "rounds": ROUNDS}
        self.study |= {"steps": 2, **(study or {}), **changes}

    def folder(self, job, who="server"):
        return self.root / who / job / "fedmed"

    def play(self, job, resume=None, fresh=(), **changes):
        folder = self.folder(job)
        going_on = {"resume": {"job": resume, "fresh": list(fresh)}} if resume else {}
        made = Job.of({**self.study, **going_on, **changes}, load_server().allowed_classes)
        server = Server(made, Store(folder.parent / "app_server"), folder)
        sites = {name: Site(name, self.folder(job, name), server) for name in SITES}

        def ask(tasks):
            answers = {}
            for name, task in tasks.items():
                try:
                    answer = getattr(sites[name], task.name)(task)
                    answers[name] = answer if task.name != "train" else server.accept(self.spoil(answer))
                except UpdateRefused:
                    continue
                except FedMedError as error:
                    server.fail(name, type(error).__name__)
            return answers

        run_federation(server, ask)
        return server

    def go_on(self, first=1):
        """Start new jobs until one ends without being killed; return its name."""
        for number in range(first, first + 50):
            jobs = [f"job-{n}" for n in range(number - 1, 0, -1) if Checkpoints(self.folder(f"job-{n}")).rounds]
            try:
                self.play(f"job-{number}", **({"resume": jobs[0]} if jobs else {}))
                return f"job-{number}"
            except Killed:
                continue
        raise AssertionError("never ends")

    def state(self, site, round, job):
        """Folder of a site's state of a round: in the newest job that needed it."""
        for number in range(int(job.removeprefix("job-")), 0, -1):
            if (path := self.folder(f"job-{number}", site) / f"state/round_{round}.pt").is_file():
                return path
        raise AssertionError(f"{site} lost its state of round {round}")

    def outcome(self, job):
        server = self.folder(job)
        models = [load_tensors(server.parent / "app_server" / name) for name in (LAST, BEST)]
        lines = read_lines(server / "rounds.jsonl")
        states = [load_tensors(self.state(site, lines[-1]["round"], job)) for site in SITES]
        return [*models, *states, timeless(lines), timeless(json.loads((server / "result.json").read_text()))]


class Death:
    """Ends the process at the n-th change of a file; from then on nothing is written."""

    def __init__(self, monkeypatch, error=Killed):
        self.at, self.calls, self.error = 0, 0, error
        for owner, name in ((os, "replace"), (os, "link"), *([(Path, "unlink")] if error is Killed else [])):
            monkeypatch.setattr(owner, name, self.guarded(getattr(owner, name)))
        monkeypatch.setattr(record, "append_json", self.torn(record.append_json))

    def due(self):
        self.calls += 1
        return self.at and self.calls >= self.at

    def guarded(self, original):
        def call(*arguments, **named):
            if self.due():
                raise self.error
            return original(*arguments, **named)

        return call

    def torn(self, original):
        def call(path, content, durable=False):
            if self.due():
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a") as stream:
                    stream.write(json.dumps(content)[:40])
                raise self.error
            original(path, content, durable)

        return call

    def set(self, at):
        self.at, self.calls = at, 0


def end_at(monkeypatch, round, name="train_tasks"):
    """The server is killed at the start of a round."""
    original = getattr(Server, name)

    def tasks(self, number):
        if number == round:
            raise Killed
        return original(self, number)

    monkeypatch.setattr(Server, name, tasks)
