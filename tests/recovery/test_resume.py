"""A run that was interrupted and resumed ends bit by bit where an uninterrupted one does."""

import math
import shutil
from contextlib import suppress

import pytest

from fedmed.durable_files import load_tensors
from fedmed.errors import JobError, RoundFailed, StateError
from fedmed.export.exporter import exporter_of
from fedmed.export.finished_run import read_finished
from fedmed.export.weights import complete_weights
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.jobs.job_folder import read_job
from fedmed.recovery.checkpoint import Checkpoints
from fedmed.recovery.interrupted_workspace import move_interrupted
from fedmed.recovery.model_store import ModelStore
from fedmed.recovery.resumed_job import Interrupted, write_resumed
from fedmed.recovery.site_state import SiteState
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from tests.federation.run_folder import Killed, result_of, rounds_of, same, spoil, timeless

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}


@pytest.fixture(autouse=True)
def scored(monkeypatch):
    """Scores that depend on every bit of the model and of the site's own layers, at no cost; some rounds are better."""

    def score(self, task, model):
        state = self.state.load(task.private_round).get("private", {})
        total = sum(float(tensor.double().sum()) for tensor in {**task.tensors, **state}.values())
        scores = {self.bundle.score.validation: 0.5 + 0.5 * math.sin(1e4 * total)}
        if model is not None:
            self.best.offer(task, model.tensors, scores)
        return scores

    def test(self, task):
        ((_, value),) = score(self, task, None).items()
        return {"n_cases": 1, self.bundle.score.test: value}

    monkeypatch.setattr(Client, "_score", score)
    monkeypatch.setattr(Client, "evaluate", test)


@pytest.fixture
def job(tiny_job, lively):
    def job(name="tiny", **changes):
        return tiny_job(name, **{"sites": TWO, "steps": 1, "overrides": lively, **changes})

    return job


@pytest.fixture
def kill(monkeypatch):
    """Return a function that ends the process when ``owner.name`` is called for the n-th time, before or after it."""

    def kill(owner, name, at, after=False):
        original, calls = getattr(owner, name), []

        def call(*arguments, **named):
            calls.append(None)
            if len(calls) == at and not after:
                raise Killed
            answer = original(*arguments, **named)
            if len(calls) == at:
                raise Killed
            return answer

        monkeypatch.setattr(owner, name, call)
        return lambda: monkeypatch.setattr(owner, name, original)

    return kill


@pytest.fixture
def interrupt(kill):
    """Run a job until a kill."""

    def interrupt(job, workspace, owner, name, at, after=False, **options):
        revive = kill(owner, name, at, after)
        with pytest.raises(Killed):
            run_job(job, workspace, **options)
        revive()

    return interrupt


def outcome(workspace):
    """All that a run leaves, but for times."""
    server = workspace / "server/simulate_job"
    models = {name: load_tensors(server / "app_server" / f"{name}FL_global_model.pt") for name in ("", "best_")}
    for state in workspace.glob("*/simulate_job/fedmed/state"):
        site = state.parents[2].name
        last = max(state.glob("round_*.pt"), key=lambda path: int(path.stem.removeprefix("round_")))
        models |= {f"{site} {last.name}": load_tensors(last)} | best_of(workspace, site)
    assert any(name.endswith(" best") for name in models)
    return models, timeless(result_of(workspace)), timeless(rounds_of(workspace))


def best_of(workspace, site):
    """The best model of a site, by name: from the newest of its jobs that has one, or its copy where it is damaged."""
    now, before = (workspace.glob(f"{site}/{job}/fedmed/state") for job in ("simulate_job", "before-*"))
    for state in (*now, *sorted(before, reverse=True)):
        for name in ("own_best.pt", "own_best_copy.pt"):
            with suppress(StateError):
                return {f"{site} best": load_tensors(state / name)}
    return {}


def assert_same_end(one, other):
    for a, b in zip(outcome(one), outcome(other), strict=True):
        assert a == b if isinstance(a, list) else a.keys() == b.keys()
        assert same(a, b)


WARM = {"sharing": "block_6", "warm_start": {"rounds": 2, "sharing": "full"}}


@pytest.mark.parametrize(
    ("method", "teacher", "round", "trained"),
    [({"rounds": 3}, "current", 1, 2), ({"rounds": 4, **WARM}, "ema", 2, 3)],
    ids=["full sharing", "partial sharing at the end of its warm start, mean teacher"],
)
def test_a_run_resumed_twice_ends_where_an_uninterrupted_one_does(
    job, lively, interrupt, tmp_path, method, teacher, round, trained
):
    """First the server is killed at the start of a round, then a site that has done its work, before it can answer."""
    overrides = {**lively, "unsupervised": {**lively["unsupervised"], "teacher": teacher}}
    folder, workspace = job(**method, overrides=overrides), tmp_path / "ws"
    run_job(folder, tmp_path / "whole")
    interrupt(folder, workspace, Server, "train_tasks", round + 1)
    interrupt(folder, workspace, Client, "train", trained, after=True, resume=True)
    old = {path: path.read_bytes() for path in workspace.glob("*/before-1/**/*.pt")}
    run_job(folder, workspace, resume=True)
    assert_same_end(tmp_path / "whole", workspace)
    assert old and {path: path.read_bytes() for path in workspace.glob("*/before-1/**/*.pt")} == old
    site = "ct_north" if "sharing" in method else None
    assert same(exported(folder, tmp_path / "whole", site), exported(folder, workspace, site))
    run = read_run(workspace)
    assert run.resumed == {"before-1": round, "before-2": method["rounds"] - (1 if teacher == "ema" else 2)}
    assert f"continued after round {round}" in page(run)


@pytest.mark.parametrize("algorithm", [None, "feddg"])
def test_a_run_on_videos_ends_where_an_uninterrupted_one_does(
    write_tiny_tools_job, interrupt, algorithm, allow_extras, tmp_path
):
    """Clips, augmentation and the weights of rare tools are drawn anew for each round, and alike."""
    allow_extras("amplitude")
    folder, workspace = write_tiny_tools_job(tmp_path, rounds=3, steps=3, algorithm=algorithm), tmp_path / "ws"
    run_job(folder, tmp_path / "whole")
    interrupt(folder, workspace, Client, "train", 3, after=True)  # round 1, at the first site
    run_job(folder, workspace, resume=True)
    assert_same_end(tmp_path / "whole", workspace)
    assert same(exported(folder, tmp_path / "whole", None), exported(folder, workspace, None))
    assert read_run(workspace).resumed == {"before-1": 1}


def exported(job, workspace, site):
    """The last model as it would be exported, with the layers that the site keeps to itself."""
    store = ModelStore(read_job(job), workspace)
    run = read_finished(workspace)
    weights = complete_weights(run, store, exporter_of(store.bundle, run.method), "last", site)
    return [weights.tensors, weights.round]


def test_a_lost_private_state_is_an_error_that_says_what_to_do(job, interrupt, tmp_path, caplog):
    folder, workspace = job(rounds=2), tmp_path / "ws"
    interrupt(folder, workspace, Server, "train_tasks", 2)
    shutil.rmtree(workspace / "ct_east/simulate_job/fedmed/state")
    with pytest.raises(RoundFailed, match="'ct_east': 'StateError'"):
        run_job(folder, workspace, resume=True)
    assert "before-1/fedmed/state: put that folder back" in caplog.text and "--allow-fresh" in caplog.text
    caplog.clear()
    assert move_interrupted(workspace, TWO) == "before-2"


@pytest.mark.parametrize("where", ["ct_*", "server"])
def test_damaged_files_of_the_last_round_are_named_and_the_run_goes_back_one(job, interrupt, tmp_path, caplog, where):
    folder, workspace = job(rounds=4, **{**WARM, "warm_start": {"rounds": 1, "sharing": "full"}}), tmp_path / "ws"
    run_job(folder, tmp_path / "whole")
    interrupt(folder, workspace, Client, "train", 4, after=True)  # of round 2, which the first of two sites has trained
    spoilt = [path for path in workspace.glob(f"{where}/simulate_job/fedmed/*/round_1.pt")]
    spoilt += workspace.glob(f"{where}/simulate_job/fedmed/state/own_best.pt")
    for path in spoilt:
        spoil(path)
    assert len(spoilt) >= (2 if where == "ct_*" else 1)
    run_job(folder, workspace, resume=True)
    assert "round_1.pt is damaged" in caplog.text and "The run goes back to its round 0" in caplog.text
    assert_same_end(tmp_path / "whole", workspace)
    assert read_run(workspace).resumed == {"before-1": 1}


def test_a_site_that_finds_its_state_damaged_says_so_and_a_job_may_go_back(job, interrupt, tmp_path, caplog):
    """Of a provisioned federation the server does not see the sites' files."""
    folder, workspace = job(rounds=4), tmp_path / "ws"
    interrupt(folder, workspace, Server, "train_tasks", 3)
    state = workspace / "ct_east/simulate_job/fedmed/state/round_1.pt"
    spoil(state)
    with pytest.raises(StateError, match=r"private state of round 1 cannot be read: .*round_1\.pt is damaged.*--back"):
        SiteState(state.parents[1]).load(1)
    run = Interrupted("old", Checkpoints(workspace / "server/simulate_job/fedmed"), folder)
    assert write_resumed(run, tmp_path / "as_it_is").done == 2
    assert write_resumed(run, tmp_path / "back", back=True).done == 1
    with pytest.raises(JobError, match="only the server has the state of 'old'"):
        write_resumed(Interrupted("old", job=folder), tmp_path / "nowhere", back=True)


def test_other_settings_of_a_site_make_another_run(job, lively, interrupt, tmp_path, caplog):
    folder, workspace = job(rounds=2), tmp_path / "ws"
    interrupt(folder, workspace, Server, "train_tasks", 2)
    other = {**lively, "unsupervised": {**lively["unsupervised"], "confidence": 0.7}}
    with pytest.raises(RoundFailed, match="'ct_east': 'StateError'"):
        run_job(job("other", rounds=2, overrides=other), workspace, resume=True)
    assert "was made with 'overrides'" in caplog.text


def test_nothing_to_resume_is_a_new_start_and_a_finished_run_an_error(job, interrupt, tmp_path):
    folder, workspace = job(rounds=1), tmp_path / "ws"
    interrupt(folder, workspace, Server, "train_tasks", 1, resume=True)
    run_job(folder, workspace, resume=True)
    assert not list(workspace.glob("*/before-*"))
    with pytest.raises(StateError, match="is finished"):
        run_job(folder, workspace, resume=True)
