"""Killed at any write, a run goes on from a whole state and ends where an uninterrupted one does.

Sites here are a few lines that compute something from every bit that they receive and keep, so that hundreds of
kills take seconds.
"""

import errno
import json
import math
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedmed.bundles.score import DICE
from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import FedMedError, JobError, StateError, UpdateRefused
from fedmed.federation import run_record as record
from fedmed.federation.server import Server
from fedmed.federation.workflow import run_federation
from fedmed.messages.answers import Update
from fedmed.recovery.model_store import BEST, LAST
from fedmed.recovery.same_run import CARRIED
from fedmed.recovery.server_state import MODELS, STATE, ServerState
from fedmed.recovery.site_state import SiteState
from fedmed.seeds import derive_seed
from fedmed.settings.server import ALLOWED

SITES = {"a": "supervised", "b": "supervised", "u": "unsupervised"}
ROUNDS, COUNTER = 5, "norm.num_batches_tracked"
MODEL = {"encoder.w": torch.tensor([0.5, -1.5]), "decoder.w": torch.tensor([[0.25]]), COUNTER: torch.tensor(0)}
PARTIAL = {"sharing": "head", "warm_start_sharing": "full"}
# A rule with a state, values for the sites, and another model for those without labels.
STATEFUL = {"rule": {"path": "momentum_rule.ServerMomentum", "args": {"beta": 0.5}}}


class Killed(BaseException):
    """The process ended."""


class Store(SimpleNamespace):
    """Stands for a bundle's model, with real files."""

    def __init__(self, folder):
        told = {"score": DICE, "calibration": None, "overlays": []}
        bundle = SimpleNamespace(name="b_segmentation", digest="d1", version="1", kind="segmentation_3d", **told)
        initial = {name: tensor.clone() for name, tensor in MODEL.items()}
        facts = {"seed": 0, "checkpoint": None, "groups": {"full": [], "head": [r"^decoder\."]}}
        super().__init__(bundle=bundle, initial=initial, folder=folder, **facts)

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
        own = self.state.load(task.private_round)
        tensors = {**MODEL, **own.get("private", {}), **task.tensors}
        step = derive_seed(0, self.name, task.round) % 1000 / 1000 + float(own.get("momentum", 0.0))
        step += sum(float(torch.as_tensor(value).sum()) for value in task.extras.values())
        after = {n: t + 1 if n == COUNTER else torch.sin(3 * t + step) for n, t in tensors.items()}
        policy = self.server.policies.of(self.server.plan.sites[self.name], task.round)
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
        own = self.state.load(task.private_round).get("private", {})
        total = sum(float(t.double().sum()) for t in {**task.tensors, **own}.values())
        value = 0.5 + 0.5 * math.sin(100 * total)
        return {"val_dice": value, "dice_mean": value, "dice_std": 0.0, "n_cases": 1}

    validate = evaluate = score


class Run:
    """A workspace in which jobs of one federation lie side by side, as at a provisioned server and its sites."""

    def __init__(self, root, aggregator=None, spoil=None, **plan):
        self.root, self.aggregator, self.spoil = Path(root), aggregator or {}, spoil or (lambda update: update)
        self.plan = {"sites": SITES, "rounds": ROUNDS, "steps": 2, **plan}

    def folder(self, job, who="server"):
        return self.root / who / job / "fedmed"

    def play(self, job, **plan):
        folder = self.folder(job)
        controller, app = {**self.plan, **plan}, folder.parent / "app_server"
        server = Server.from_args(controller, self.aggregator, Store(app), folder)
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
            jobs = [f"job-{n}" for n in range(number - 1, 0, -1) if (self.folder(f"job-{n}") / STATE).is_file()]
            try:
                self.play(f"job-{number}", **({"resume": jobs[0]} if jobs else {}))
                return f"job-{number}"
            except Killed:
                continue
        raise AssertionError("never ends")

    def state(self, site, round, job):
        """Where a site's state of a round lies: in the newest job that needed it."""
        for number in range(int(job.removeprefix("job-")), 0, -1):
            if (path := self.folder(f"job-{number}", site) / f"state/round_{round}.pt").is_file():
                return path
        raise AssertionError(f"{site} lost its state of round {round}")

    def outcome(self, job):
        server = self.folder(job)
        models = [load_tensors(server.parent / "app_server" / name) for name in (LAST, BEST)]
        lines = [json.loads(line) for line in (server / "rounds.jsonl").read_text().splitlines()]
        states = [load_tensors(self.state(site, lines[-1]["round"], job)) for site in SITES]
        return [*models, *states, timeless(lines), timeless(json.loads((server / "result.json").read_text()))]


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if "seconds" not in key}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


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


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Thousands of files: none needs to survive a power cut, and the versions of packages stay what they are."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(record, "package_versions", dict)
    monkeypatch.setattr(record, "hardware", dict)
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "federation" / "made_up")
    monkeypatch.setenv(ALLOWED, STATEFUL["rule"]["path"])


@pytest.fixture
def whole(tmp_path):
    """Return a function: arguments of a run -> what it leaves when nobody interrupts it."""

    def whole(*arguments, **plan):
        run = Run(tmp_path / "whole", *arguments, **plan)
        run.play("job-1")
        return run.outcome("job-1")

    return whole


@pytest.mark.parametrize(
    "sharing", [{}, PARTIAL, STATEFUL], ids=["full", "partial with a warm start", "a rule with a state"]
)
def test_killed_at_any_write_a_run_still_ends_the_same(tmp_path, monkeypatch, whole, sharing):
    plan = {"warm_start_rounds": 2 if sharing == PARTIAL else 0}
    expected, death = whole(sharing, **plan), Death(monkeypatch)
    for at in range(1, 1000):
        run = Run(tmp_path / f"at{at}", sharing, **plan)
        death.set(at)
        try:
            run.play("job-1")
        except Killed:
            death.set(0)
            state = ServerState(run.folder("job-1"))
            if state.path.is_file():
                known = state.read()
                assert all(state.read_model(round) for round in known.models)
                assert (state.read_rule(known) is not None) == known.rule == (sharing == STATEFUL)
                assert len(state.read_rounds(known.round)) == known.round + 1
            done = run.folder("job-1") / "result.json"
            job = "job-1" if done.is_file() else run.go_on(first=2)
            assert same(run.outcome(job), expected), at
        else:
            break
    assert at > 45, "the run was hardly ever interrupted"


def test_killed_again_and_again(tmp_path, monkeypatch, whole):
    plan = {"warm_start_rounds": 2}
    expected, death = whole(PARTIAL, **plan), Death(monkeypatch)
    dice = random.Random(0)
    for number in range(12):
        run, job = Run(tmp_path / str(number), PARTIAL, **plan), None
        for attempt in range(1, 100):
            death.set(dice.randint(5, 40))
            jobs = [f"job-{n}" for n in range(attempt - 1, 0, -1) if (run.folder(f"job-{n}") / STATE).is_file()]
            try:
                run.play(job := f"job-{attempt}", **({"resume": jobs[0]} if jobs else {}))
                break
            except Killed:
                if (run.folder(job) / "result.json").is_file():
                    break
        assert attempt > 1 and same(run.outcome(job), expected), (number, attempt)


@pytest.mark.parametrize("refused", [0, 2, 3])
def test_a_site_whose_last_update_was_refused_goes_on_from_the_one_before(tmp_path, monkeypatch, whole, refused):
    def spoil(update):
        if (update.site, update.round) == ("b", refused):
            update.tensors["encoder.w"] = torch.full((2,), float("nan"))
        return update

    plan = {"min_clients": 1, "warm_start_rounds": 1}
    expected = whole(PARTIAL, spoil, **plan)
    run = Run(tmp_path / "ws", PARTIAL, spoil, **plan)
    for job, round in (("job-1", refused + 1), ("job-2", 4)):
        resume = {"resume": "job-1"} if job == "job-2" else {}
        with monkeypatch.context() as patch:
            end_at(patch, round)
            with pytest.raises(Killed):
                run.play(job, **resume)
    assert run.folder("job-1", "b").joinpath(f"state/round_{refused}.pt").is_file(), "it was trained, and not taken"
    run.play("job-3", resume="job-2")
    assert same(run.outcome("job-3"), expected)


def end_at(monkeypatch, round, name="train_tasks"):
    """The server is killed at the start of a round."""
    original = getattr(Server, name)

    def tasks(self, number):
        if number == round:
            raise Killed
        return original(self, number)

    monkeypatch.setattr(Server, name, tasks)


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Return a function: a run that was killed at the start of a round (default 3)."""

    def broken(*arguments, round=3, **plan):
        run = Run(tmp_path / "ws", *arguments, **plan)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            end_at(patch, round)
            run.play("job-1")
        return run

    return broken


def test_a_run_that_ends_early_does_so_after_any_kill(tmp_path, monkeypatch, whole):
    """Scores here are as good as random, so that two models without a better score come soon."""
    plan = {"rounds": 12, "patience": 2, "min_rounds": 3}
    expected, death = whole(**plan), Death(monkeypatch)
    result, lines = expected[-1], expected[-2]
    assert 3 <= len(lines) < 12 and result["stopped_early"]["rounds"] == len(lines)
    assert "the last 2 models in a row were not better" in result["stopped_early"]["reason"]
    scores = [line["score"] for line in lines]
    assert max(scores) not in scores[-2:] and set(result["test"]) == set(SITES) and result["validation_last"]
    for at in range(1, 1000, 4):
        run = Run(tmp_path / f"at{at}", **plan)
        death.set(at)
        try:
            run.play("job-1")
        except Killed:
            death.set(0)
            done = run.folder("job-1") / "result.json"
            job = "job-1" if done.is_file() else run.go_on(first=2)
            assert same(run.outcome(job), expected), at
        else:
            break
    assert at > 30, "the run was hardly ever interrupted"


def test_a_run_that_would_have_ended_may_get_more_patience(broken):
    run = broken(rounds=12, patience=1, round=2)
    assert run.play("job-2", resume="job-1", patience=11).rounds == 12


def test_rounds_that_failed_at_the_end_are_repeated(tmp_path, whole):
    sick = {2, 3}

    def spoil(update):
        if update.round in sick and update.site != "a":
            raise UpdateRefused(update.site, "broken")
        return update

    run = Run(tmp_path / "ws", spoil=spoil)
    with pytest.raises(FedMedError, match="round 3: 1 of 3 updates accepted"):
        run.play("job-1")
    state = ServerState(run.folder("job-1"))
    assert state.read().round == 1 and state.read().best_round is not None
    sick.clear()
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), whole())


def test_the_state_of_a_rule_outlives_rounds_that_failed(tmp_path, whole):
    """Round 2 fails and is repeated by the job that resumes: the rule must be as it was after round 1."""
    sick = {2, 3}

    def spoil(update):
        if update.round in sick and update.site == "u":
            raise UpdateRefused("u", "broken")
        return update

    run = Run(tmp_path / "ws", STATEFUL, spoil)
    with pytest.raises(FedMedError, match="round 3: 2 of 3 updates accepted"):
        run.play("job-1")
    kept = ServerState(run.folder("job-1"))
    assert [path.name for path in kept.rules.iterdir()] == ["round_1.pt"]
    assert kept.read_rule(kept.read()).state["rounds"] == 2
    sick.clear()
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), whole(STATEFUL))


def test_the_state_of_another_rule_or_network_is_refused(broken):
    run = broken(STATEFUL)
    run.aggregator = {"rule": {**STATEFUL["rule"], "args": {"beta": 0.25}}}
    with pytest.raises(JobError, match="aggregator argument 'rule' is .*0.25.*, it was .*0.5"):
        run.play("job-2", resume="job-1")
    run.aggregator = STATEFUL
    state = ServerState(run.folder("job-1"))
    path = state.rule_path(2)
    content = load_tensors(path)
    for change, message in (
        ({"rule": "somewhere.Else"}, "is of the rule somewhere.Else, this job's rule is momentum_rule.ServerMomentum"),
        ({"network": {**content["network"], "encoder.w": "float32 (3,)"}}, "another network: tensor 'encoder.w'"),
        ({"meta": {"round": 1}}, "round_2.pt holds the rule's state of another round"),
        ({"for_roles": {"supervised": {}}}, "does not fit this job"),
    ):
        save_tensors(path, {**content, **change})
        with pytest.raises(StateError, match=message):
            run.play("job-2", resume="job-1")
    path.unlink()
    with pytest.raises(StateError, match="round_2.pt does not exist"):
        run.play("job-2", resume="job-1")


def test_a_resumed_run_says_so_and_a_finished_one_keeps_no_state(broken):
    run = broken()
    server = run.play("job-2", resume="job-1")
    assert server.first_round == 3
    facts = json.loads((run.folder("job-2") / "run.json").read_text())
    assert facts["resumed"] == {"job-1": 3}
    assert not (run.folder("job-2") / STATE).exists() and not (run.folder("job-2") / MODELS).exists()
    assert (run.folder("job-1") / STATE).is_file()
    result = json.loads((run.folder("job-2") / "result.json").read_text())
    lines = [json.loads(line) for line in (run.folder("job-2") / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(ROUNDS))
    assert result["seconds_total"] > sum(line["seconds"] for line in lines[:3])


def test_more_rounds_than_before(broken, tmp_path):
    run = broken()
    run.play("job-2", resume="job-1", rounds=7)
    longer = Run(tmp_path / "longer", rounds=7)
    longer.play("job-1")
    assert same(run.outcome("job-2"), longer.outcome("job-1"))


def test_a_state_may_come_with_the_job(broken, tmp_path):
    run = broken()
    app = run.folder("job-2").parent / "app_server"
    app.mkdir(parents=True)
    run.folder("job-1").rename(app / CARRIED)
    run.play("job-2", resume="job-1")
    assert (run.folder("job-2") / "result.json").is_file()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"steps": 3}, "controller argument 'steps' is 3, it was 2"),
        ({"sites": {**SITES, "u": "supervised"}}, "argument 'sites'"),
        ({"sites": {**SITES, "new": "supervised"}}, "argument 'sites'"),
        ({"warm_start_rounds": 1}, "'warm_start_rounds'"),
        ({"rounds": 2}, "has 3 rounds; 'rounds' is 2, ask for more"),
        ({"resume": "../job-1"}, "is not the id of a job"),
        ({"resume": "/tmp/job-1"}, "is not the id of a job"),
        ({"resume": "job-7"}, "state of job 'job-7' is not at this server"),
    ],
)
def test_a_job_that_would_make_another_run_of_it_is_refused(broken, plan, message):
    run = broken()
    before = (run.folder("job-1") / STATE).read_bytes()
    with pytest.raises(FedMedError, match=message):
        run.play("job-2", **{"resume": "job-1", **plan})
    assert (run.folder("job-1") / STATE).read_bytes() == before


def test_another_bundle_or_rule_is_refused(broken, monkeypatch):
    run = broken()
    run.aggregator = {"user_weights": {"u": 2.0}}
    with pytest.raises(JobError, match="aggregator argument 'user_weights'"):
        run.play("job-2", resume="job-1")
    run.aggregator = {}
    monkeypatch.setattr(Store, "describe", lambda self: {"digest": "d2"})
    with pytest.raises(JobError, match="model argument 'digest' is 'd2', it was 'd1'.*same version of the bundle"):
        run.play("job-2", resume="job-1")


def test_who_is_waited_for_may_change(broken):
    run = broken()
    run.play("job-2", resume="job-1", min_clients=2, task_timeout=60, max_failed_rounds=5)


def test_a_finished_run_is_not_resumed(tmp_path):
    run = Run(tmp_path)
    run.play("job-1")
    with pytest.raises(StateError, match="'job-1' was finished"):
        run.play("job-2", resume="job-1")


@pytest.mark.parametrize("damage", ["state", "model", "other model", "version"])
def test_a_damaged_state_is_named(broken, damage):
    run = broken()
    state = ServerState(run.folder("job-1"))
    model = state.model_path(state.read().round)
    if damage == "state":
        state.path.write_text(state.path.read_text()[:100])
    elif damage == "model":
        model.write_bytes(b"damaged")
    elif damage == "other model":
        save_tensors(model, {"model": MODEL, "meta": {"round": 1}})
    else:
        state.path.write_text(state.path.read_text().replace('"format": 1', '"format": 2'))
    words = {"state": "server_state.json cannot be read", "model": "is damaged", "version": "another version of FedMed"}
    with pytest.raises(StateError, match=words.get(damage, "holds the model of another round")):
        run.play("job-2", resume="job-1")


@pytest.mark.parametrize(
    "change",
    [
        {"round": "../../secret"},
        {"round": -1},
        {"best_model": "../../secret"},
        {"best_model": 9},
        {"last_round": {"a": "../../secret"}},
        {"last_round": {"a": 7}},
        {"best_private": {"a": [1]}},
        {"earlier": {"../job": 1}},
        {"earlier": {"job": "1"}},
        {"last_round": 3},
        {"rule": "../../secret"},
        {"stopping": {"waited": "../../secret"}},
    ],
)
def test_no_path_arrives_in_a_state_that_a_job_brings(broken, change):
    state = ServerState(broken().folder("job-1"))
    state.path.write_text(json.dumps({**json.loads(state.path.read_text()), **change}))
    with pytest.raises(StateError, match="server_state.json cannot be read"):
        state.read()


def test_a_site_without_its_state_is_named_and_may_start_afresh(broken, caplog):
    run = broken(PARTIAL, min_clients=2)
    for path in (run.folder("job-1", "b") / "state").iterdir():
        path.unlink()
    with pytest.raises(StateError, match="round 2 cannot be read.*job-1/fedmed/state: put that folder back.*--allow-f"):
        site = Site("b", run.folder("job-2", "b"), None)
        site.state.earlier = {"job-1": 3}
        site.state.load(2)
    server = run.play("job-2", resume="job-1", fresh=["b"])
    assert "the choice of a model starts anew" in caplog.text and "b lost" in caplog.text
    lines = [json.loads(line) for line in (run.folder("job-2") / "rounds.jsonl").read_text().splitlines()]
    assert all(line["accepted"] == ["a", "b", "u"] for line in lines)
    assert server.selection.best_round >= 2


def test_a_site_that_starts_afresh_keeps_the_choice_where_nothing_is_private(broken):
    run = broken()
    best = ServerState(run.folder("job-1")).read().best_round
    server = run.play("job-2", resume="job-1", fresh=["b"], rounds=4)
    assert server.last_round["b"] == 3 and server.selection.best_round is not None and best is not None


def test_a_full_disk_at_the_server_ends_in_plain_words_and_the_run_goes_on_later(tmp_path, monkeypatch, whole):
    expected = whole()
    full = Death(monkeypatch, error=OSError(errno.ENOSPC, "No space left on device"))
    seen = set()
    for at in range(1, 200):
        run = Run(tmp_path / f"at{at}")
        full.set(at)
        try:
            run.play("job-1")
        except FedMedError as error:
            full.set(0)
            seen.add(type(error).__name__)
            assert "free space" in str(error).lower() or "needed; the model is unchanged" in str(error)
            done = run.folder("job-1") / "result.json"
            job = "job-1" if done.is_file() else run.go_on(first=2)
            assert same(run.outcome(job), expected), at
        else:
            break
    assert at > 40 and "StateError" in seen


def test_without_links_models_are_copied(tmp_path, monkeypatch, whole):
    expected = whole()
    monkeypatch.setattr(os, "link", lambda *a: (_ for _ in ()).throw(OSError(errno.EPERM, "not permitted")))
    run = Run(tmp_path / "ws")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        end_at(patch, 3)
        run.play("job-1")
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), expected)


def test_a_new_run_in_a_used_folder_forgets_the_old_state(tmp_path, broken):
    run = broken()
    (run.folder("job-1") / "rounds.jsonl").unlink()
    run.play("job-1")
    assert not (run.folder("job-1") / STATE).exists()
