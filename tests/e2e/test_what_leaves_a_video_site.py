"""Tools in videos in NVFlare's simulator: no frame, label or name leaves a site, and the loop gives the same model."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.privacy.limits import read_ledger
from fedmed_demo import demo_site

pytestmark = pytest.mark.slow
GOOD = ("lap_hei1", "lap_hei2")
SITES = (*GOOD, "lap_cho1")  # the last has lost a video that lies in a folder named after a patient
PATIENT = "Meier-4711"


@pytest.fixture(scope="module")
def run(tmp_path_factory, fedmed_home, write_tiny_tools_job, tap):
    """Folder of a finished run, ``ws`` by the simulator and ``loop`` in one process."""
    root = tmp_path_factory.mktemp("tools")
    (root / "configs").mkdir()
    for site in SITES:
        data = shutil.copytree(demo_site("lap_tools_tiny", site, fedmed_home), root / "data" / site)
        values = {"data_root": str(data), "device": "cpu", "threads": 1, "cache_dir": str(root / "cache" / site)}
        values |= {"privacy": {"min_cases": 1}}  # one video to choose by, of nobody
        (root / "configs" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    lose_a_video(root / "data" / SITES[-1])
    job = write_tiny_tools_job(root, sites=dict.fromkeys(SITES, "supervised"), rounds=2, min_clients=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_SITE_CONFIGS", str(root / "configs"))
        command = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(job), "-w", str(root / "ws")]
        done = subprocess.run(
            [*command, "-t", "3"], capture_output=True, text=True, timeout=1800, cwd=root, env=tap(root)
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        run_job(job, root / "loop")
    return root


def lose_a_video(data):
    datalist = json.loads((data / "datalist.json").read_text())
    entry = datalist["training"][0]
    (data / entry["video"]).unlink()
    entry["video"] = f"{PATIENT}/{PATIENT}.mp4"
    (data / "datalist.json").write_text(json.dumps(datalist))


@pytest.fixture(scope="module")
def secrets(run, secrets_type):
    """Videos as files, as pixels and prepared, masks, tables of labels and predictions, names, a site's own state."""
    found = secrets_type()
    for site in SITES:
        found.add_site(run / "data" / site, run / "data" / site / "datalist.json", [PATIENT])
        found.add_prepared(run / "cache" / site).add_tested(run / "ws" / site)
        for path in (run / "ws" / site / "simulate_job/fedmed/state").glob("round_*.pt"):
            state = load_tensors(path)["optimizer"]["state"]
            found.add_tensors(
                f"{site} {path.stem}", {f"{n} {k}": v for n, one in state.items() for k, v in one.items()}
            )
    parts = (".mp4 file", ".mp4 pixels", ".csv table", "prepared", "of the test", "exp_avg_sq")
    assert all(any(part in name for name in found.content) for part in parts)
    assert {PATIENT, "LHB-001", "labels/LHB-001.csv"} <= set(found.words)
    return found


def server(run, workspace):
    return run / workspace / "server/simulate_job"


def test_the_loop_gives_the_same_models_and_scores(run):
    for name in ("FL_global_model.pt", "best_FL_global_model.pt"):
        flare, loop = (load_tensors(server(run, one) / "app_server" / name)["model"] for one in ("ws", "loop"))
        assert flare.keys() == loop.keys() and all(torch.equal(flare[key], loop[key]) for key in loop)
    flare, loop = (json.loads((server(run, one) / "fedmed/result.json").read_text()) for one in ("ws", "loop"))
    assert flare["test"] == loop["test"] and set(flare["test"]) == set(SITES)
    for site in SITES:
        (table,) = (run / "ws" / site).rglob("evaluation/frames/*.csv")
        assert table.read_bytes() == (run / "loop" / table.relative_to(run / "ws")).read_bytes()


def test_nothing_secret_is_on_the_wire(run, secrets):
    capture = b"".join(path.read_bytes() for path in sorted((run / "capture").iterdir()))
    final = load_tensors(server(run, "ws") / "app_server/FL_global_model.pt")["model"]
    control = type(secrets)().add_tensors("shared", {"stem": final["encoder.conv1.weight"]})
    secrets.content |= control.content  # one search takes half the time of two
    assert secrets.found_in(capture) == list(control.content)


def test_nothing_secret_is_at_the_server(run, secrets):
    files = [path for path in (run / "ws/server").rglob("*") if path.is_file()]
    kinds = ("log.txt", "rounds.jsonl", "result.json", "FL_global_model.pt", "events.out.tfevents")
    assert all(any(kind in path.name for path in files) for kind in kinds)
    kept = b"\0".join(path.read_bytes() for path in files)
    assert [name for name in secrets.found_in(kept) if name != "shared stem"] == []


def test_the_site_without_its_video_says_so_at_home_alone(run):
    answers = {line["answer"] for line in read_ledger(run / "ws" / SITES[-1])}
    assert answers == {"live", "refused", "scores"}  # the lists 'validation' and 'testing' are whole
    assert PATIENT in (run / "ws" / SITES[-1] / "simulate_job/fedmed/progress.jsonl").read_text()
