"""Temporal stages in NVFlare's simulator, in one thread and with a thread for each site, equal the loop.

The features of the run before cross the wire once; what each hospital computes of its videos never does.
"""

from pathlib import Path

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed_demo import demo_site
from tests.e2e import runs

pytestmark = pytest.mark.slow
JOB = Path(__file__).resolve().parents[2] / "studies/phases_tecno.yaml"
SIZE = {"image_size": [24, 32]}
ROLES = {"lap_harbor": "supervised", "lap_bay": "supervised", "lap_isle": "evaluate"}
STATE = "simulate_job/fedmed/state/round_1.pt"


@pytest.fixture(scope="module")
def place(store_of, tmp_path_factory, fedmed_home):
    """The job, a model of single frames, and two hospitals all of whose videos have labels."""
    root = tmp_path_factory.mktemp("temporal")
    (root / "configs").mkdir()
    (root / "models").mkdir()
    for site, role in ROLES.items():
        data = demo_site("lap_phases_tiny", site, fedmed_home)
        values = {"data_root": str(data), "device": "cpu", "threads": 1, "cache_dir": str(root / "cache" / site)}
        values |= {"privacy": {"min_cases": 1}}  # one video to choose by, of nobody
        values |= {"datalist": str(data / "datalist_labelled.json")} if role == "supervised" else {}
        (root / "configs" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    tensors = store_of(root, "surgical_phase_classification", ["demo"], overrides={"supervised": SIZE}, seed=5).initial
    torch.save({"model": tensors, "meta": {}}, root / "models/best_FL_global_model.pt")
    overrides = {role: SIZE for role in set(ROLES.values())}
    write_job(read_job(JOB).changed({"sites": ROLES, "rounds": 2, "overrides": overrides}), root / "job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_SITE_CONFIGS", str(root / "configs"))
        patch.setenv("FEDMED_MODELS", str(root / "models"))
        run_job(root / "job", root / "loop")
        yield root


@pytest.mark.parametrize("threads", [1, 3])
def test_the_simulator_equals_the_loop(place, threads):
    workspace = place / f"flare_{threads}"
    runs.simulate(place / "job", workspace, threads)
    assert runs.same_models(workspace, place / "loop")
    for site in ("lap_harbor", "lap_bay"):
        flare, loop = (load_tensors(ws / site / STATE) for ws in (workspace, place / "loop"))
        assert flare["private"] and runs.same(flare["private"], loop["private"])
        assert runs.same(flare["optimizer"]["state"], loop["optimizer"]["state"])
    test = runs.result(workspace)["test"]
    assert test == runs.result(place / "loop")["test"] and set(test) == set(ROLES)
