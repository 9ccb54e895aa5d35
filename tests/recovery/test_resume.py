"""A run that was interrupted and resumed ends bit by bit where an uninterrupted one does."""

import math
import shutil
from contextlib import suppress
from types import SimpleNamespace

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

pytestmark = pytest.mark.usefixtures("no_charts")

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}


@pytest.fixture(scope="module", autouse=True)
def scored():
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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_score", score)
        patch.setattr(Client, "evaluate", test)
        yield


def interrupt(job, workspace, owner, name, at, after=False, **options):
    """Run a job until its process ends: when ``owner.name`` is called for the n-th time, before or after it."""
    original, calls = getattr(owner, name), []

    def call(*arguments, **named):
        calls.append(None)
        if len(calls) == at and not after:
            raise Killed
        answer = original(*arguments, **named)
        if len(calls) == at:
            raise Killed
        return answer

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, name, call)
        run_job(job, workspace, **options)


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


PARTIAL = {"rounds": 3, "sharing": "block_6", "warm_start": {"rounds": 1, "sharing": "full"}}


@pytest.fixture(scope="module")
def whole(write_tiny_job, lively, tmp_path_factory):
    """Job and workspace of a run that nobody interrupts: a mean teacher, and private layers after a warm start."""
    folder = tmp_path_factory.mktemp("whole")
    overrides = {**lively, "unsupervised": {**lively["unsupervised"], "teacher": "ema"}}
    job = write_tiny_job(folder, sites=TWO, steps=1, overrides=overrides, **PARTIAL)
    run_job(job, folder / "ws")
    return SimpleNamespace(job=job, workspace=folder / "ws")


@pytest.fixture(scope="module")
def _cut(write_tiny_job, lively, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut")
    job = write_tiny_job(folder, sites=TWO, steps=1, overrides=lively, rounds=3)
    interrupt(job, folder / "ws", Server, "train_tasks", 3)
    return job, folder / "ws"


@pytest.fixture
def cut(_cut, tmp_path):
    """Job and workspace, the test's own, of a run of three rounds whose server was killed before the third."""
    job, workspace = _cut
    return SimpleNamespace(job=job, workspace=shutil.copytree(workspace, tmp_path / "ws"))


def test_a_run_resumed_twice_ends_where_an_uninterrupted_one_does(whole, tmp_path):
    """First the server is killed at the end of the warm start, then a site that has done its work, before it can
    answer.
    """
    workspace = tmp_path / "ws"
    interrupt(whole.job, workspace, Server, "train_tasks", 2)
    interrupt(whole.job, workspace, Client, "train", 3, after=True, resume=True)
    old = {path: path.read_bytes() for path in workspace.glob("*/before-1/**/*.pt")}
    run_job(whole.job, workspace, resume=True)
    assert_same_end(whole.workspace, workspace)
    assert old and {path: path.read_bytes() for path in workspace.glob("*/before-1/**/*.pt")} == old
    assert same(exported(whole.job, whole.workspace, "ct_north"), exported(whole.job, workspace, "ct_north"))
    run = read_run(workspace)
    assert run.resumed == {"before-1": 1, "before-2": 2}
    assert "continued after round 1" in page(run)


def test_a_run_on_videos_ends_where_an_uninterrupted_one_does(write_tiny_tools_job, allow_extras, tmp_path):
    """Clips, augmentation and the weights of rare tools are drawn anew for each round, and alike."""
    allow_extras("amplitude")
    folder, workspace = write_tiny_tools_job(tmp_path, rounds=3, steps=1, algorithm="feddg"), tmp_path / "ws"
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


def test_a_lost_private_state_is_an_error_that_says_what_to_do(cut, caplog):
    shutil.rmtree(cut.workspace / "ct_east/simulate_job/fedmed/state")
    with pytest.raises(RoundFailed, match="'ct_east': 'StateError'"):
        run_job(cut.job, cut.workspace, resume=True)
    assert "before-1/fedmed/state: put that folder back" in caplog.text and "--allow-fresh" in caplog.text
    caplog.clear()
    assert move_interrupted(cut.workspace, TWO) == "before-2"


@pytest.fixture(scope="module")
def half_trained(whole, tmp_path_factory):
    """The run that one of two sites trained for its last round, when it was interrupted. Do not write to it."""
    workspace = tmp_path_factory.mktemp("half_trained") / "ws"
    interrupt(whole.job, workspace, Client, "train", 4, after=True)  # the first round is that of one site
    return workspace


@pytest.mark.parametrize("where", ["ct_*", "server"])
def test_damaged_files_of_the_last_round_are_named_and_the_run_goes_back_one(
    whole, half_trained, tmp_path, caplog, where
):
    workspace = shutil.copytree(half_trained, tmp_path / "ws")
    spoilt = [path for path in workspace.glob(f"{where}/simulate_job/fedmed/*/round_1.pt")]
    spoilt += workspace.glob(f"{where}/simulate_job/fedmed/state/own_best.pt")
    for path in spoilt:
        spoil(path)
    assert len(spoilt) >= (2 if where == "ct_*" else 1)
    run_job(whole.job, workspace, resume=True)
    assert "round_1.pt is damaged" in caplog.text and "The run goes back to its round 0" in caplog.text
    assert_same_end(whole.workspace, workspace)
    assert read_run(workspace).resumed == {"before-1": 1}


def test_a_site_that_finds_its_state_damaged_says_so_and_a_job_may_go_back(cut, tmp_path):
    """Of a provisioned federation the server does not see the sites' files."""
    state = cut.workspace / "ct_east/simulate_job/fedmed/state/round_1.pt"
    spoil(state)
    with pytest.raises(StateError, match=r"private state of round 1 cannot be read: .*round_1\.pt is damaged.*--back"):
        SiteState(state.parents[1]).load(1)
    run = Interrupted("old", Checkpoints(cut.workspace / "server/simulate_job/fedmed"), cut.job)
    assert write_resumed(run, tmp_path / "as_it_is").done == 2
    assert write_resumed(run, tmp_path / "back", back=True).done == 1
    with pytest.raises(JobError, match="only the server has the state of 'old'"):
        write_resumed(Interrupted("old", job=cut.job), tmp_path / "nowhere", back=True)


def test_other_settings_of_a_site_make_another_run(tiny_job, lively, cut, caplog):
    other = {**lively, "unsupervised": {**lively["unsupervised"], "confidence": 0.7}}
    with pytest.raises(RoundFailed, match="'ct_east': 'StateError'"):
        run_job(tiny_job(sites=TWO, steps=1, rounds=3, overrides=other), cut.workspace, resume=True)
    assert "was made with 'overrides'" in caplog.text


def test_nothing_to_resume_is_a_new_start_and_a_finished_run_an_error(tiny_job, lively, tmp_path):
    folder, workspace = tiny_job(sites=TWO, steps=1, rounds=1, overrides=lively), tmp_path / "ws"
    interrupt(folder, workspace, Server, "train_tasks", 1, resume=True)
    run_job(folder, workspace, resume=True)
    assert not list(workspace.glob("*/before-*"))
    with pytest.raises(StateError, match="is finished"):
        run_job(folder, workspace, resume=True)
