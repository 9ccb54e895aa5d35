"""NVFlare's simulator in one thread; test_what_leaves_a_site.py compares one with a thread for each site."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
NVFLARE = Path(sys.executable).with_name("nvflare")


def simulate(job, workspace, *options):
    command = [str(NVFLARE), "simulator", str(job), "-w", str(workspace), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=workspace.parent, env=os.environ)


def model(workspace):
    return load_tensors(workspace / "server/simulate_job/app_server/FL_global_model.pt")["model"]


@pytest.fixture
def job(tiny_job):
    """Return a function that writes a tiny job of two sites; keyword arguments change it."""
    overrides = {"batch_size": 1, "patch_size": [16, 16, 16], "window_size": [64, 64, 16], "pixdim": [5.5, 5.5, 12.0]}
    lively = {**overrides, "confidence": 0.5, "unsupervised_learning_rate": 1e-3}
    return lambda **changes: tiny_job(sites=TWO, overrides={"supervised": overrides, "unsupervised": lively}, **changes)


def test_with_one_thread_it_equals_the_loop(job, tmp_path):
    """Each task of each site is then a new process; those of scoring are left out."""
    folder = job(evaluate=False, select="last")
    run = simulate(folder, tmp_path / "ws")
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    run_job(folder, tmp_path / "loop")
    flare, loop = model(tmp_path / "ws"), model(tmp_path / "loop")
    assert flare.keys() == loop.keys() and all(torch.equal(flare[name], loop[name]) for name in loop)


def test_a_site_that_cannot_work_ends_the_job_in_plain_words(job, tmp_path, tiny_site_configs, monkeypatch):
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "ct_north.yaml").write_text((tiny_site_configs / "ct_north.yaml").read_text())
    (folder / "ct_east.yaml").write_text("data_root: /does/not/exist\n")
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(folder))
    run = simulate(job(), tmp_path / "ws", "-t", "2")
    text = run.stdout + run.stderr
    assert "/does/not/exist does not exist" in text and "round 0: 1 of 2 updates accepted, 2 needed" in text
    assert not (tmp_path / "ws/server/simulate_job/fedmed/result.json").exists()
    server_log = (tmp_path / "ws/server/log.txt").read_text()
    assert "/does/not/exist" not in server_log
