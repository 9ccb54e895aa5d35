"""A server that trains after averaging, in NVFlare's simulator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmed.durable_files import load_tensors

PACKAGE = Path(__file__).parent / "serving_bundle"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_flare_and_the_loop_are_equal_bit_for_bit(serving, same, tmp_path, monkeypatch, threads):
    server = serving("loop")
    paths = [str(PACKAGE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    command = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(tmp_path / "jobs/loop")]
    command += ["-w", str(tmp_path / "flare"), "-t", str(threads)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    job = tmp_path / "flare/server/simulate_job"
    assert same(load_tensors(job / "app_server/FL_global_model.pt")["model"], dict(server.tensors))
    shown = b"".join(path.read_bytes() for path in (job / "tb_events").rglob("events.*"))
    assert all(f"server/{name}".encode() in shown for name in ("server_loss", "domain_norm", "feature_gap"))
    assert (job / "fedmed/progress.jsonl").is_file()
