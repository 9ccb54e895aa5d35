"""Private queries and a training server, in NVFlare's simulator, in one thread and in many, equal the loop.

What the server trains with its own pictures, and what stays at a hospital, is the same bit for bit.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.recovery.model_store import ModelStore

pytestmark = pytest.mark.slow
JOB = Path(__file__).resolve().parents[2] / "jobs/instruments_fedst"
SIZE = {"image_size": [32, 40]}
ROLES = {"inst_nephro1": "supervised", "inst_hyst": "supervised", "inst_lobe": "evaluate"}
DEMO = {"demo": "lap_instruments_tiny", "device": "cpu", "threads": 1}
RUN = "simulate_job"
STATE = f"{RUN}/fedmed/state/round_1.pt"


@pytest.fixture(scope="module")
def place(tmp_path_factory, fedmed_home):
    """The job, its result in one process, a pre-trained model, and settings of hospitals and server."""
    root = tmp_path_factory.mktemp("instruments")
    (root / "configs").mkdir()
    for site in ROLES:
        values = {**DEMO, "allow_release": True, "allow_kept_release": True}
        values |= {"cache_dir": str(root / "cache" / site), "words": {"procedure": "unheard_of"}}
        (root / "configs" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    server = {**DEMO, "demo_site": "inst_simulator", "cache_dir": str(root / "cache/server")}
    (root / "server.yaml").write_text(yaml.safe_dump(server))
    tensors = ModelStore(root, "instrument_segmentation", ["demo", "single_frame"], SIZE, seed=5).initial
    torch.save({"model": tensors, "meta": {}}, root / "best_FL_global_model.pt")
    small = {"sites": ROLES, "rounds": 2, "steps": 2, "overrides": {role: SIZE for role in set(ROLES.values())}}
    write_job(read_job(JOB).changed(small), root / "job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_SITE_CONFIGS", str(root / "configs"))
        patch.setenv("FEDMED_SERVER_CONFIG", str(root / "server.yaml"))
        patch.setenv("FEDMED_MODELS", str(root))
        run_job(root / "job", root / "loop")
        yield root


@pytest.mark.parametrize("threads", [1, 3])
def test_the_simulator_equals_the_loop(place, threads):
    workspace = place / f"flare_{threads}"
    command = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(place / "job"), "-w", str(workspace)]
    done = subprocess.run(
        [*command, "-t", str(threads)], capture_output=True, text=True, timeout=600, cwd=place, env=os.environ
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "unheard_of" not in done.stdout + done.stderr, "a hospital's words stay there"
    places = (workspace, place / "loop")
    for name in ("FL_global_model.pt", "best_FL_global_model.pt"):
        same(*(load_tensors(ws / "server" / RUN / "app_server" / name)["model"] for ws in places))
    for site in ("inst_nephro1", "inst_hyst"):
        flare, loop = (load_tensors(ws / site / STATE) for ws in places)
        assert flare["private"]
        same(flare["private"], loop["private"])
    flare, loop = (json.loads((ws / "server" / RUN / "fedmed/result.json").read_text()) for ws in places)
    assert flare["test"] == loop["test"] and set(flare["test"]) == set(ROLES)
    rounds = [rows(ws) for ws in places]
    for key in ("domain_norm", "descriptor_gap", "feature_gap", "server_loss_pre", "server_loss"):
        assert [row[key] for row in rounds[0]] == [row[key] for row in rounds[1]], key


def same(one, other):
    """Named tensors are equal bit for bit."""
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in other)


def rows(workspace):
    path = workspace / "server" / RUN / "fedmed/rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
