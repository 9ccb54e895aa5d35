"""A method written for this test alone runs everywhere from two files and one overlay: nothing in the package knows it.

Its rule keeps a state, sends values to the sites and gives one role another model; its correction keeps a state at each
site and uses those values.
"""

import os
import shutil
from pathlib import Path

import pytest

from fedmed.bundles.find import find_bundle
from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.settings.server import ALLOWED
from tests.e2e import runs

CUSTOM = Path(__file__).parents[1] / "federation" / "custom_parts"
RULE = {"path": "momentum_rule.ServerMomentum", "args": {"beta": 0.5}}
TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
ROUNDS, STEPS = 2, 2


@pytest.fixture
def job(tmp_path, tiny_job, lively, monkeypatch):
    """A tiny job with the method; its two files are importable, its overlay lies in a copy of the bundle."""
    bundle = shutil.copytree(find_bundle("covid_ct_segmentation"), tmp_path / "bundles" / "covid_ct_segmentation")
    shutil.copy(CUSTOM / "custom_method.yaml", bundle / "configs")
    monkeypatch.setenv("FEDMED_BUNDLES", str(bundle.parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CUSTOM), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(CUSTOM)
    monkeypatch.setenv(ALLOWED, RULE["path"])
    plan = {"rounds": ROUNDS, "steps": STEPS, "sites": TWO, "overrides": lively}
    return tiny_job("custom", overlays=["demo", "custom_method"], rule=RULE, **plan)


def left(workspace):
    """All that a run leaves: models, each site's last private state, and the rounds without what a clock says."""
    models = [runs.model(workspace, name) for name in (runs.LAST, runs.BEST)]
    states = [load_tensors(workspace / f"{site}/simulate_job/fedmed/state/round_{ROUNDS - 1}.pt") for site in TWO]
    return models, states, timeless(runs.rounds(workspace)), timeless(runs.result(workspace)["test"])


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key != "seconds"}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def test_a_killed_and_resumed_run_equals_a_whole_one_bit_for_bit(job, tmp_path, monkeypatch):
    run_job(job, tmp_path / "loop")
    _, states, lines, _ = expected = left(tmp_path / "loop")
    for state in states:
        (kept,) = state["engine"]["corrections"]
        assert kept["path"] == "dynamic_correction.DynamicTerm"
        assert kept["state"]["rounds"] == [[round, STEPS * round, STEPS * ROUNDS] for round in range(ROUNDS)]
        assert any(g.any() for g in kept["state"]["g"].values())
    assert all(line["speed"] > 0 for line in lines)
    assert [line.get("bytes_extras", 0) for line in lines] == [0, 48]  # two numbers and two float32, two sites

    begin = Server.train_tasks
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Server, "train_tasks", lambda self, round: begin(self, round) if not round else _killed())
        run_job(job, tmp_path / "killed")
    assert (tmp_path / "killed/server/simulate_job/fedmed/checkpoints/round_0.pt").is_file()
    run_job(job, tmp_path / "killed", resume=True)
    assert runs.same(left(tmp_path / "killed"), expected)


@pytest.mark.slow
def test_flare_equals_the_loop_bit_for_bit(job, tmp_path):
    run_job(job, tmp_path / "loop")
    runs.simulate(job, tmp_path / "flare", 2)
    assert runs.same(left(tmp_path / "flare"), left(tmp_path / "loop"))


def _killed():
    raise KeyboardInterrupt


def test_the_method_is_refused_where_the_server_does_not_allow_its_rule(job, tmp_path, monkeypatch):
    monkeypatch.delenv(ALLOWED)
    with pytest.raises(Exception, match="a job may not name the class 'momentum_rule.ServerMomentum'"):
        run_job(job, tmp_path / "refused")
    assert not (tmp_path / "refused/ct_north").exists(), "nothing was trained"
