"""Faults in real NVFlare processes: nothing is lost, and what NVFlare gives up goes on after the last good round.

In one process the same is in tests/federation/test_faults_in_process.py and tests/recovery.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.errors import StateError
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from tests.e2e.runs import rounds, same_models

pytestmark = pytest.mark.slow
CHECKOUT = Path(__file__).resolve().parents[2]
TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}


def fedmed(words, *arguments, timeout=1800, cwd=None):
    """Run a command; return its process when it is done."""
    command = [sys.executable, "-m", "fedmed", *words.split(), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=os.environ, cwd=cwd)


def make_faulty(job, faults, **settings):
    """Let the executors of a job go wrong: site -> round, as text -> one of the faults of tests/faulty_executor.py."""
    for path in job.glob("app_*/config/config_fed_client.json"):
        config = json.loads(path.read_text())
        executor = config["executors"][0]["executor"]
        executor["path"] = "faulty_executor.FaultyExecutor"
        executor["args"] = {"faults": faults, **settings}
        path.write_text(json.dumps(config))
        shutil.copy(CHECKOUT / "tests" / "faulty_executor.py", path.parents[1] / "custom")
    return job


@pytest.fixture
def job(tiny_job):
    """A tiny job of two sites, of which the unlabelled one moves the model too."""
    overrides = {"batch_size": 1, "patch_size": [16, 16, 16], "window_size": [48, 40, 16], "pixdim": [8.0, 8.0, 16.0]}
    lively = {**overrides, "confidence": 0.5, "unsupervised_learning_rate": 1e-3}
    roles = {"supervised": overrides, "unsupervised": lively}
    return lambda name="tiny", **changes: tiny_job(name, **{"sites": TWO, "steps": 1, "overrides": roles, **changes})


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
    run = fedmed("simulate", folder, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    lines = rounds(tmp_path / "ws")
    assert [line["accepted"] for line in lines] == [["ct_north"], ["ct_north"], ["ct_east", "ct_north"]]
    reported = [line["refused"][0]["reason"] for line in lines[:2]]
    assert "NaN or infinite" in reported[0] and "computed for round 0, this is round 1" in reported[1]
    for content in models(tmp_path / "ws/server/simulate_job/app_server").values():
        assert all(torch.isfinite(tensor).all() for tensor in content["model"].values())
    assert (tmp_path / "ws/ct_east/simulate_job/fedmed/evaluation/patients.csv").is_file()
    assert "round 3/3 finished" in run.stdout and (tmp_path / "ws/report/report.html").is_file()


def test_a_run_to_which_no_labelled_site_contributed_fails_and_says_who_did(job, tmp_path):
    folder = make_faulty(job(rounds=2, min_clients=1), {"ct_north": {"0": "nan", "1": "nan"}})
    run = fedmed("simulate", folder, "--workspace", tmp_path / "ws", cwd=tmp_path)
    said = "no update of a site with labels (ct_north) entered the model in any round"
    assert run.returncode == 1 and said in run.stderr, run.stdout[-3000:] + run.stderr[-3000:]
    shown = fedmed("report", tmp_path / "ws")
    assert "Contributed to the model: ct_north to none of 2 rounds" in " ".join(shown.stdout.split()), shown.stdout


def test_a_killed_simulation_goes_on_and_ends_like_one_that_was_not(job, tmp_path):
    folder = job(rounds=3)
    run_job(folder, tmp_path / "whole")
    make_faulty(folder, {"ct_east": {"1": "kill"}}, mark=str(tmp_path / "killed"))
    run = fedmed("simulate", folder, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert (tmp_path / "killed").exists() and run.returncode == 1, run.stdout[-3000:] + run.stderr[-3000:]
    assert "--resume continues after the last good round" in run.stderr
    run = fedmed("simulate", folder, "--workspace", tmp_path / "ws", "--resume", "--control", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert (tmp_path / "ws/control/report/report.html").is_file() and "which has no labels" in run.stdout
    assert '<p class="summary">ct_east, which has no labels: Dice' in (tmp_path / "ws/report/report.html").read_text()
    lines = rounds(tmp_path / "ws/control")
    assert [(line["accepted"], line["refused"]) for line in lines] == [(["ct_north"], [])] * 3, "it makes no faults"
    assert "continues after round 1 of 3" in run.stdout and "This run was interrupted" in run.stdout
    assert same_models(tmp_path / "ws", tmp_path / "whole")
    again = fedmed("simulate", folder, "--workspace", tmp_path / "ws", "--resume", cwd=tmp_path)
    assert again.returncode == 2 and "is finished; there is nothing to resume" in again.stderr


def log_of(result):
    return (result / "workspace/log.txt").read_text()


def spoil(path):
    """Flip 64 bytes in the middle of a file, which PyTorch reads without a word."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(255 - byte for byte in content[middle : middle + 64])
    path.write_bytes(content)


def test_flipped_bytes_in_every_file_of_the_last_round_are_named_and_the_simulation_goes_back_one(job, tmp_path):
    folder = job(rounds=3)
    run_job(folder, tmp_path / "whole")
    make_faulty(folder, {"ct_east": {"2": "kill"}}, mark=str(tmp_path / "killed"))
    run = fedmed("simulate", folder, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert (tmp_path / "killed").exists() and run.returncode == 1, run.stdout[-3000:] + run.stderr[-3000:]
    last = [*(tmp_path / "ws").glob("*/simulate_job/fedmed/*/round_1.pt")]
    assert len(last) >= 3, "of the server and of both sites"
    for path in last:
        spoil(path)
    run = fedmed("simulate", folder, "--workspace", tmp_path / "ws", "--resume", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert "round_1.pt is damaged" in run.stderr and "goes back to its round 0" in run.stderr
    assert "continues after round 1 of 3" in run.stdout
    assert same_models(tmp_path / "ws", tmp_path / "whole")


def rounds_of(result):
    return [json.loads(line) for line in (result / "workspace/fedmed/rounds.jsonl").read_text().splitlines()]


@pytest.fixture
def goes_on(tmp_path, tiny_site_configs):
    """Return a function: continue a job from what is left of it and compare its end with an uninterrupted run."""

    def goes_on(federation, clean, *left, **options):
        made = fedmed("study resume", *left, tmp_path / "again", *options.get("arguments", ()))
        assert made.returncode == 0, made.stderr
        job_id = federation.submit(tmp_path / "again")
        meta = federation.finish(job_id)
        assert meta["status"] == "FINISHED:COMPLETED", (meta, federation.said("server", *federation.sites))
        result = federation.download(job_id)
        run_job(clean, tmp_path / "whole")
        assert_equal(models(result / "workspace/app_server"), models(tmp_path / "whole/server/simulate_job/app_server"))
        assert [line["round"] for line in rounds_of(result)] == list(range(3))
        return made.stdout

    return goes_on


def test_a_killed_site_process_ends_the_job_and_nothing_is_lost(federation, job, goes_on, tmp_path):
    clean = job(rounds=3)
    faulty = make_faulty(job("faulty", rounds=3), {"ct_east": {"1": "kill"}}, mark=str(tmp_path / "killed"))
    job_id = federation.submit(faulty)
    meta = federation.finish(job_id)
    assert (tmp_path / "killed").exists() and meta["status"] != "FINISHED:COMPLETED"
    result = federation.download(job_id)
    said = log_of(result)
    assert "site 'ct_east': its process for this job ended" in said and f"fedmed study resume {job_id}" in said
    said = goes_on(federation, clean, result)
    assert "from round 2 of 3" in said and f"ct_east needs its own state of round 1, in {job_id}" in said


def test_a_site_whose_kept_state_is_damaged_names_it_and_the_next_job_goes_back_a_round(
    federation, job, goes_on, tmp_path
):
    clean = job(rounds=3)
    faulty = make_faulty(job("faulty", rounds=3), {"ct_east": {"2": "kill"}}, mark=str(tmp_path / "killed"))
    job_id = federation.submit(faulty)
    assert federation.finish(job_id)["status"] != "FINISHED:COMPLETED" and (tmp_path / "killed").exists()
    damaged = federation.run_folder("ct_east", job_id) / "fedmed/state/round_1.pt"
    spoil(damaged)
    download = federation.download(job_id)
    assert fedmed("study resume", download, tmp_path / "as_it_is").returncode == 0
    failed = federation.submit(tmp_path / "as_it_is")
    assert federation.finish(failed)["status"] != "FINISHED:COMPLETED"
    log = (federation.run_folder("ct_east", failed) / "log.txt").read_text()
    assert f"{damaged} is damaged" in log and "fedmed study resume --back" in log
    assert "from round 2 of 3; 1 are done" in goes_on(federation, clean, download, arguments=("--back",))


@pytest.fixture(scope="module")
def own_federation(new_federation):
    """A federation whose participants may vanish."""
    federation = new_federation(TWO)
    federation.start_all()
    return federation


def until(what, seconds=600):
    deadline = time.monotonic() + seconds
    while not (outcome := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return outcome


def test_a_killed_server_goes_on_after_its_restart(own_federation, job, goes_on, tmp_path):
    clean, federation = job(rounds=3), own_federation
    settings = {"seconds": 600, "mark": str(tmp_path / "late")}
    faulty = make_faulty(job("faulty", rounds=3), {"ct_east": {"1": "late"}}, **settings)
    job_id = federation.submit(faulty)
    until((tmp_path / "late").exists)
    federation.restart("server", only_waiting=True)
    assert not federation.job_processes("server", job_id), "it would write into what is resumed"
    kept = federation.run_folder("server", job_id)
    assert list((kept / "fedmed/checkpoints").glob("round_*.pt")) and not (kept / "fedmed/result.json").exists()
    assert fedmed("study resume", kept, tmp_path / "by_folder", "--job", faulty).returncode == 0
    assert federation.session("lead").get_job_meta(job_id)["status"] == "FINISHED:ABORTED"
    said = log_of(federation.download(job_id))
    assert "started anew while this job ran" in said and f"fedmed study resume {job_id}" in said
    said = goes_on(federation, clean, job_id, arguments=("--job", faulty))
    assert "the server finds it in its own folder" in said


@pytest.mark.parametrize("min_clients", [1, None])
def test_a_site_that_starts_anew_is_waited_for_no_longer(own_federation, job, tmp_path, min_clients):
    """Its supervisor has it back in seconds: heartbeats go on, and only the job's process there is gone."""
    needs = {} if min_clients is None else {"min_clients": min_clients}
    settings = {"seconds": 600, "mark": str(tmp_path / "late")}
    faulty = make_faulty(job("faulty", rounds=3, **needs), {"ct_east": {"1": "late"}}, **settings)
    job_id = own_federation.submit(faulty)
    until((tmp_path / "late").exists)
    own_federation.restart("ct_east")
    status = own_federation.finish(job_id, timeout=400)["status"]
    result = own_federation.download(job_id)
    if min_clients is None:
        assert status != "FINISHED:COMPLETED" and "the job's process is gone at ct_east" in log_of(result)
        return
    assert status == "FINISHED:COMPLETED", own_federation.said("server")
    lines = rounds_of(result)
    assert [line["accepted"] for line in lines] == [["ct_east", "ct_north"], ["ct_north"], ["ct_north"]]
    assert lines[1]["refused"][0]["reason"].startswith("the job's process is gone")


def test_a_kit_that_is_started_twice_is_named_at_the_server_and_at_both_places(new_federation):
    """NVFlare lets the two push each other out, and says nothing."""
    federation = new_federation({"ct_north": "supervised"})
    federation.start("server", "ct_north")
    federation.wait_for("ct_north")
    copy = federation.folder / "copy"
    shutil.copytree(federation.kit("ct_north"), copy, ignore=shutil.ignore_patterns("*.fl", "*.txt"))
    line = ["bash", str(copy / "startup" / "sub_start.sh"), "--once"]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(line, env=federation.environment("ct_north"), start_new_session=True, **streams)
    for kit, words in (
        (
            federation.kit("server"),
            "site 'ct_north' connects again and again while it is connected, from ipv4:127.0.0.1:",
        ),
        (federation.kit("ct_north"), "this site's kit is started twice"),
        (copy, "this site's kit is started twice"),
    ):
        assert until(lambda log=kit / "log.txt", words=words: words in log.read_text(), 300), kit
    federation.close()


def test_a_killed_process_at_the_server_is_named_in_the_jobs_own_log(own_federation, job, tmp_path):
    settings = {"seconds": 600, "mark": str(tmp_path / "late")}
    faulty = make_faulty(job("faulty", rounds=3), {"ct_east": {"1": "late"}}, **settings)
    job_id = own_federation.submit(faulty)
    until((tmp_path / "late").exists)
    for process in own_federation.job_processes("server", job_id):
        process.kill()
    assert own_federation.finish(job_id, timeout=300)["status"] != "FINISHED:COMPLETED"
    said = log_of(own_federation.download(job_id))
    assert "ended without its last word" in said and f"fedmed study resume {job_id}" in said


def test_a_site_that_vanishes_is_waited_for_no_longer_and_comes_back_with_its_state(
    own_federation, job, goes_on, tmp_path, missing
):
    """NVFlare needs about three minutes to see that a site is gone, and never lets it into a running job again."""
    clean, federation = job(rounds=3, min_clients=1), own_federation
    settings = {"seconds": 600, "mark": str(tmp_path / "late")}
    faulty = make_faulty(job("faulty", rounds=3, min_clients=1), {"ct_east": {"1": "late"}}, **settings)
    job_id = federation.submit(faulty)
    until((tmp_path / "late").exists)
    federation.kill("ct_east")
    state = federation.run_folder("server", job_id) / "fedmed/checkpoints/round_1.pt"
    until(state.is_file, seconds=600)
    federation.session("lead").abort_job(job_id)
    federation.finish(job_id)
    federation.restart("ct_east")
    missing("ct_east", 1)
    said = goes_on(federation, clean, federation.download(job_id))
    assert "from round 3 of 3" in said and f"ct_east needs its own state of round 1, in {job_id}" in said


@pytest.fixture
def missing(monkeypatch):
    """Return a function: in the in-process loop a site's update of a round does not arrive."""

    def missing(site, round):
        train = Client.train

        def call(self, task):
            update = train(self, task)
            if (self.site.site, task.round) == (site, round):
                raise StateError("did not arrive")
            return update

        monkeypatch.setattr(Client, "train", call)

    return missing


def test_a_late_answer_is_dropped_and_counts_in_no_later_round(job, tmp_path, missing):
    clean = job(rounds=3, min_clients=1, task_timeout=45)
    settings = {"seconds": 60, "mark": str(tmp_path / "late")}
    late = make_faulty(job("late", rounds=3, min_clients=1, task_timeout=45), {"ct_east": {"1": "late"}}, **settings)
    run = fedmed("simulate", late, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    lines = rounds(tmp_path / "ws")
    assert [line["accepted"] for line in lines] == [["ct_east", "ct_north"], ["ct_north"], ["ct_east", "ct_north"]]
    assert lines[1]["refused"] == [{"site": "ct_east", "reason": "no answer"}]
    missing("ct_east", 1)
    run_job(clean, tmp_path / "whole")
    assert same_models(tmp_path / "ws", tmp_path / "whole")


def test_a_full_disk_at_the_server_leaves_the_last_good_round(job, tmp_path, monkeypatch):
    monkeypatch.setenv("FAULTY_PERSISTOR_MARK", str(tmp_path / "full"))
    clean, full = job(rounds=3), make_faulty(job("full", rounds=3), {})
    path = full / "app_server/config/config_fed_server.json"
    config = json.loads(path.read_text())
    next(c for c in config["components"] if c["id"] == "persistor")["path"] = "faulty_executor.FullDiskPersistor"
    path.write_text(json.dumps(config))
    shutil.copy(CHECKOUT / "tests" / "faulty_executor.py", full / "app_server" / "custom")
    run = fedmed("simulate", full, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert run.returncode == 1 and "No space left on device. Free space" in run.stderr, run.stdout + run.stderr
    kept = models(tmp_path / "ws/server/simulate_job/app_server")["FL_global_model.pt"]
    assert kept["meta"]["round"] == 0
    run = fedmed("simulate", full, "--workspace", tmp_path / "ws", "--resume", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    run_job(clean, tmp_path / "whole")
    assert same_models(tmp_path / "ws", tmp_path / "whole")


def test_the_other_faults_are_named_in_the_record_and_the_run_goes_on(job, tmp_path):
    expected = {
        "raise": "answered EXECUTION_EXCEPTION",
        "out of memory": "answered EXECUTION_EXCEPTION",
        "shape": "shape",
        "wrong key": "nobody.knows",
        "100 times": "norm",
        "later round": "computed for round 6, this is round 5",
    }
    faults = {str(round): kind for round, kind in enumerate(expected)}
    folder = make_faulty(job(rounds=7, min_clients=1, max_norm=4.0), {"ct_east": faults})
    run = fedmed("simulate", folder, "--workspace", tmp_path / "ws", cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    lines = rounds(tmp_path / "ws")
    for line, words in zip(lines, expected.values(), strict=False):
        assert line["accepted"] == ["ct_north"] and words in line["refused"][0]["reason"]
    assert lines[6]["accepted"] == ["ct_east", "ct_north"] and lines[6]["refused"] == []
