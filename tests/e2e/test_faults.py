"""Faults in real NVFlare processes: nothing is lost, and what NVFlare gives up goes on after the last good round."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedmed.federation.loop import run_job
from fedmed.federation.state import load_tensors

CHECKOUT = Path(__file__).resolve().parents[2]
TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}


def script(name, *arguments, timeout=300, cwd=None):
    """Run one of the scripts; return its process when it is done."""
    command = [sys.executable, str(CHECKOUT / "scripts" / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=os.environ, cwd=cwd)


def make_faulty(job, faults, **settings):
    """Let the executors of a job go wrong: site -> round, as text -> one of the faults of tests/faulty_executor.py."""
    for path in job.glob("app_*/config/config_fed_client.json"):
        config = json.loads(path.read_text())
        executor = config["executors"][0]["executor"]
        executor["path"] = "faulty_executor.FaultyExecutor"
        executor["args"] |= {"faults": faults, **settings}
        path.write_text(json.dumps(config))
        shutil.copy(CHECKOUT / "tests" / "faulty_executor.py", path.parents[1] / "custom")
    return job


@pytest.fixture
def job(tiny_job):
    """A tiny job of two sites, of which the unlabelled one moves the model too."""
    overrides = {"batch_size": 1, "patch_size": [16, 16, 16], "window_size": [64, 64, 16], "pixdim": [5.5, 5.5, 12.0]}
    lively = {**overrides, "confidence": 0.5, "unsupervised_learning_rate": 1e-3}
    roles = {"supervised": overrides, "unsupervised": lively}
    return lambda name="tiny", **changes: tiny_job(name, **{"sites": TWO, "steps": 1, "overrides": roles, **changes})


def records(workspace):
    return workspace / "server/simulate_job/fedmed"


def models(app):
    """Last and selected model below a folder, with what is known of them."""
    return {path.name: load_tensors(path) for path in sorted(app.glob("*FL_global_model.pt"))}


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys() and len(ours) == 2
    for name, content in ours.items():
        other = theirs[name]
        assert content["meta"] == other["meta"] and content["model"].keys() == other["model"].keys()
        assert all(torch.equal(tensor, other["model"][key]) for key, tensor in content["model"].items()), name


def test_nan_and_a_stale_round_are_refused_and_the_run_ends_well(job, tmp_path):
    folder = make_faulty(job(rounds=3, min_clients=1), {"ct_east": {"0": "nan", "1": "stale round"}})
    run = script("simulate", folder, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    lines = [json.loads(line) for line in (records(tmp_path / "ws") / "rounds.jsonl").read_text().splitlines()]
    assert [line["accepted"] for line in lines] == [["ct_north"], ["ct_north"], ["ct_east", "ct_north"]]
    told = [line["refused"][0]["reason"] for line in lines[:2]]
    assert "NaN or infinite" in told[0] and "computed for round 0, this is round 1" in told[1]
    for content in models(tmp_path / "ws/server/simulate_job/app_server").values():
        assert all(torch.isfinite(tensor).all() for tensor in content["model"].values())


def test_a_killed_simulation_goes_on_and_ends_like_one_that_was_not(job, tmp_path):
    folder = job(rounds=3)
    run_job(folder, tmp_path / "whole")
    make_faulty(folder, {"ct_east": {"1": "kill"}}, mark=str(tmp_path / "killed"))
    run = script("simulate", folder, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert (tmp_path / "killed").exists() and run.returncode == 1, run.stdout[-3000:] + run.stderr[-3000:]
    assert "--resume goes on after the last good round" in run.stderr
    run = script("simulate", folder, "--workspace", tmp_path / "ws", "--resume", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert "goes on after round 1 of 3" in run.stdout and "This run was interrupted" in run.stdout
    assert_equal(
        models(tmp_path / "ws/server/simulate_job/app_server"),
        models(tmp_path / "whole/server/simulate_job/app_server"),
    )
    again = script("simulate", folder, "--workspace", tmp_path / "ws", "--resume", cwd=tmp_path)
    assert again.returncode == 2 and "is finished; there is nothing to resume" in again.stderr
