"""NVFlare's simulator equals the loop, in one thread and with a thread for each site, whatever the algorithm.

With the algorithm that keeps and sends the most and a thread for each site, it is in test_what_leaves_a_site.py, also
where no test is slow; the command ``fedmed simulate`` is in test_what_leaves_an_xray_site.py.
"""

import pytest

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from tests.e2e import runs
from tests.e2e.runs import model, same, simulate

pytestmark = pytest.mark.slow
TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
ALGORITHMS = {
    "fedavg": {"server_step": "adamw"},
    "fedprox": {"algorithm": "fedprox", "server_step": "yogi"},
    "feddyn": {"algorithm": "feddyn", "server_step": "adamw"},
    "scaffold": {"algorithm": "scaffold", "server_step": "adamw"},  # the most to keep and to send on both sides
    "feddg": {"algorithm": {"name": "feddg", "args": {"bank_images": 2}}},
    "fedrep": {"algorithm": "fedrep", "server_step": "adamw"},
    "fedbn": {"algorithm": "fedbn"},
}
STATE = "simulate_job/fedmed/state/round_1.pt"


@pytest.fixture
def job(tiny_job):
    """Return a function that writes a tiny job of two sites; keyword arguments change it."""
    overrides = {"batch_size": 1, "patch_size": [16, 16, 16], "window_size": [48, 40, 16], "pixdim": [8.0, 8.0, 16.0]}
    lively = {**overrides, "confidence": 0.5, "unsupervised_learning_rate": 1e-3}
    return lambda **changes: tiny_job(sites=TWO, overrides={"supervised": overrides, "unsupervised": lively}, **changes)


def test_with_one_thread_it_equals_the_loop(job, tmp_path):
    """Each task of each site is then a new process; those of scoring are left out."""
    folder = job(evaluate=False, select="last")
    simulate(folder, tmp_path / "ws")
    run_job(folder, tmp_path / "loop")
    assert same(model(tmp_path / "ws"), model(tmp_path / "loop"))


@pytest.fixture
def tools_job(write_tiny_tools_job, allow_extras, tmp_path):
    """Return a function: one of the algorithms -> a tiny job of two sites with it."""
    allow_extras("amplitude", "control_difference")
    spec = {"rounds": 2, "steps": 2, "evaluate": False, "select": "last"}
    return lambda name: write_tiny_tools_job(tmp_path, **spec, **ALGORITHMS[name])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_equals_the_loop(name, threads, tools_job, tmp_path):
    folder = tools_job(name)
    simulate(folder, tmp_path / "ws", threads)
    assert_equals_the_loop(folder, tmp_path)


def assert_equals_the_loop(folder, tmp_path):
    """The model and what each site keeps of the last round: its layers, its optimizer, the algorithm's state."""
    run_job(folder, tmp_path / "loop")
    assert same(model(tmp_path / "ws"), model(tmp_path / "loop"))
    sites = sorted(path.parents[3].name for path in (tmp_path / "loop").glob(f"*/{STATE}"))
    assert sites == ["lap_hei1", "lap_hei2"]
    for site in sites:
        flare, loop = (load_tensors(tmp_path / ws / site / STATE) for ws in ("ws", "loop"))
        assert same(flare, loop), site


@pytest.mark.parametrize("threads", [1, 3])
def test_sites_that_send_a_part_of_the_model_equal_the_loop(threads, write_tiny_phases_job, tmp_path):
    """Hospitals with videos of phases, of which one sends its classifier too."""
    folder = write_tiny_phases_job(tmp_path, rounds=2, steps=2, evaluate=False, select="last")
    simulate(folder, tmp_path / "ws", threads)
    run_job(folder, tmp_path / "loop")
    assert same(model(tmp_path / "ws"), model(tmp_path / "loop"))
    for site in ("lap_harbor", "lap_bay", "lap_cliff"):
        assert same(*(load_tensors(tmp_path / ws / site / STATE) for ws in ("ws", "loop"))), site
    flare, loop = ([line["coefficients"] for line in runs.rounds(tmp_path / ws)] for ws in ("ws", "loop"))
    assert flare == loop


def test_weights_in_two_parts_and_helpers_equal_the_loop(write_tiny_phases_job, tiny_phases, allow_extras, tmp_path):
    """What two hospitals trained travels to the other one beside the model."""
    allow_extras("noise_answer")
    sites = {"lap_harbor": "supervised", "lap_bay": "unsupervised", "lap_cliff": "unsupervised"}
    overrides = dict.fromkeys(("supervised", "unsupervised"), tiny_phases["supervised"])
    spec = {"method": {"path": "fedmed.systems.fixmatch.method.FedMatch"}, "sites": sites, "overrides": overrides}
    folder = write_tiny_phases_job(tmp_path, rounds=2, steps=2, evaluate=False, select="last", **spec)
    simulate(folder, tmp_path / "ws", 1)
    run_job(folder, tmp_path / "loop")
    assert same(model(tmp_path / "ws"), model(tmp_path / "loop"))
    for site in sites:
        flare, loop = (load_tensors(tmp_path / ws / site / STATE) for ws in ("ws", "loop"))
        assert same(flare, loop) and ("helpers" in flare["engine"]) == (site != "lap_harbor"), site


def test_a_site_that_cannot_work_ends_the_job_in_plain_words(job, tmp_path, tiny_site_configs, monkeypatch):
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "ct_north.yaml").write_text((tiny_site_configs / "ct_north.yaml").read_text())
    (folder / "ct_east.yaml").write_text("data_root: /does/not/exist\n")
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(folder))
    run = runs.try_to_simulate(job(), tmp_path / "ws", 2)
    text = run.stdout + run.stderr
    assert "/does/not/exist does not exist" in text and "round 0: 1 of 2 updates accepted, 2 needed" in text
    assert not (tmp_path / "ws/server/simulate_job/fedmed/result.json").exists()
    server_log = (tmp_path / "ws/server/log.txt").read_text()
    assert "/does/not/exist" not in server_log
