"""The failure paths of fedmed simulate, with a stand-in for the simulator."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.commands import fedmed


@pytest.fixture(scope="module")
def script():
    return fedmed("simulate")


def test_exit_0_without_a_result_is_a_failure(script, job, stand_in, tmp_path, capsys):
    stand_in("print('2026 - ServerRunner - ERROR - no aggregator of that name')")
    assert script([str(job), "--workspace", str(tmp_path / "ws")]) == 1
    printed = capsys.readouterr()
    assert "error: job failed: no aggregator of that name" in printed.err
    assert str(tmp_path / "ws.log") in printed.err
    assert "no aggregator" in (tmp_path / "ws.log").read_text()


def test_a_result_of_an_earlier_run_does_not_count(script, job, stand_in, tmp_path, capsys):
    stand_in("pass")
    result = tmp_path / "ws/server/simulate_job/fedmed/result.json"
    result.parent.mkdir(parents=True)
    result.write_text("{}")
    assert script([str(job), "--workspace", str(tmp_path / "ws"), "--quiet"]) == 1
    assert "NVFlare wrote nothing" in capsys.readouterr().err


def test_a_sites_own_error_is_printed_as_one_line_and_at_the_end(script, job, stand_in, tmp_path, capsys):
    stand_in(
        "f = w / 'site_a/simulate_job/fedmed'; f.mkdir(parents=True)\n"
        'line = \'{"event": "error", "task": "train", "round": 0, "message": "mask is empty"}\'\n'
        "(f / 'progress.jsonl').write_text(line + chr(10)); sys.exit(3)"
    )
    assert script([str(job), "--workspace", str(tmp_path / "ws")]) == 1
    printed = capsys.readouterr()
    assert "ERROR mask is empty" in printed.out
    assert "site_a: mask is empty" in printed.err


def test_the_simulator_gets_absolute_paths_and_a_thread_for_each_site(script, job, stand_in, tmp_path, monkeypatch):
    stand_in("print(sys.argv[1:])")
    monkeypatch.chdir(tmp_path)
    script(["job", "--workspace", "ws", "--gpu", "0,1"])
    arguments = (tmp_path / "ws.log").read_text().strip()
    assert arguments == str(["simulator", str(job), "-w", str(tmp_path / "ws"), "-t", "2", "--gpu", "0,1"])


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (None, "meta.json is missing"),
        ("{", "is damaged"),
        ('{"deploy_map": 3}', "is damaged"),
        ('{"deploy_map": {"app": ["@ALL"]}}', "must name each site"),
        ('{"deploy_map": {"app": ["server"]}}', "must name each site"),
    ],
)
def test_a_folder_that_is_not_a_job(script, job, capsys, meta, words):
    (job / "meta.json").unlink() if meta is None else (job / "meta.json").write_text(meta)
    assert script([str(job)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{tmp}/none"], "the folder does not exist"),
        (["{tmp}/study.yaml"], "study.yaml: is empty; it must hold 'key: value' lines"),
        (["{tmp}/job", "--models", "{tmp}/none"], "/none is not a folder"),
        (["{tmp}/job", "--threads", "0"], "use 1 to 2"),
        (["{tmp}/job", "--threads", "3"], "use 1 to 2"),
        (["{tmp}/job", "--workspace", "{tmp}"], "would be deleted"),
        (["{tmp}/job", "--workspace", "{tmp}/a b"], "a space"),
    ],
)
def test_mistakes_are_told_before_anything_starts(script, job, stand_in, tmp_path, capsys, arguments, words):
    stand_in("raise SystemExit('must not start')")
    (tmp_path / "study.yaml").touch()
    (tmp_path / "server/simulate_job").mkdir(parents=True)
    line = ["--workspace", str(tmp_path / "ws"), *(argument.format(tmp=tmp_path) for argument in arguments)]
    assert script(line) == 2
    assert words in capsys.readouterr().err


def test_a_folder_of_somebody_elses_is_never_deleted(script, job, stand_in, tmp_path, capsys):
    stand_in("raise SystemExit('must not start')")
    for place, content in (("thesis", "draft.tex"), ("website", "server/index.js")):
        path = tmp_path / place / content
        path.parent.mkdir(parents=True)
        path.touch()
        (tmp_path / place / "notes").touch()
        assert script([str(job), "--workspace", str(tmp_path / place)]) == 2
        assert "not an earlier run" in capsys.readouterr().err
        assert path.exists()


def test_without_nvflare_beside_python(script, job, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert script([str(job), "--workspace", str(tmp_path / "ws")]) == 2
    assert "NVFlare is missing" in capsys.readouterr().err


def test_resume_renames_the_run_and_starts_the_job_that_continues_it(script, interrupted, stand_in, capsys):
    job, workspace = interrupted / "study", interrupted / "ws"
    stand_in(
        "import yaml; job = Path(sys.argv[2])\n"
        "c = yaml.safe_load((job / 'app_server/config/study.yaml').read_text())\n"
        "print('ERROR: x - ERROR -', c['resume']['job'], os.environ['FEDMED_RESUME_ROOT'], w.exists(),\n"
        "      (job / 'app_server/resume/checkpoints/round_0.pt').is_file())"
    )
    kept = {path: path.read_bytes() for path in workspace.rglob("*.pt")}
    assert script([str(job), "--workspace", str(workspace), "--resume"]) == 1
    printed = capsys.readouterr()
    assert "study: continues after round 1 of 2" in printed.out
    assert f"ws.before-1 {interrupted} False True" in printed.err
    aside = interrupted / "ws.before-1"
    assert {aside / path.relative_to(workspace): content for path, content in kept.items()} == {
        path: path.read_bytes() for path in aside.rglob("*.pt")
    }
    # It ended before it took over: the next attempt continues the same run, and moves nothing.
    assert script([str(job), "--workspace", str(workspace), "--resume"]) == 1
    assert "kept in " + str(aside) in capsys.readouterr().out
    assert not (interrupted / "ws.before-2").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: (w / "server/simulate_job/fedmed/result.json").write_text("{}"), "is finished; there is nothing to"),
        (lambda w: shutil.rmtree(w / "server/simulate_job/fedmed/checkpoints"), "no run with a finished round"),
        (lambda w: [p.write_text(p.read_text().replace("steps: 1", "steps: 2")) for p in w.parent.glob(
            "study/app_*/config/study.yaml")], "'steps' of its study is 2, it was 1"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_go_on_stays_where_it_is(script, interrupted, stand_in, capsys, spoil, words):
    stand_in("raise SystemExit('must not start')")
    spoil(interrupted / "ws")
    assert script([str(interrupted / "study"), "--workspace", str(interrupted / "ws"), "--resume"]) == 2
    assert words in capsys.readouterr().err
    assert (interrupted / "ws/server/simulate_job/fedmed").is_dir() and not list(interrupted.glob("ws.before*"))


def test_a_finished_run_is_kept_when_another_begins_in_its_workspace(script, job, stand_in, tmp_path, capsys):
    workspace, kept = tmp_path / "ws", tmp_path / "ws.previous"
    result = Path("server/simulate_job/fedmed/result.json")
    stand_in("sys.exit(1)")
    for text in ("{}", "[]"):  # the second takes the place of the first
        (workspace / result).parent.mkdir(parents=True)
        (workspace / result).write_text(text)
        (tmp_path / "ws.log").write_text(text)
        assert script([str(job), "--workspace", str(workspace)]) == 1
        assert f"is now in {kept}" in capsys.readouterr().out and not workspace.exists()
        assert (kept / result).read_text() == (tmp_path / "ws.previous.log").read_text() == text
    (kept / result).rename(tmp_path / "ws.previous/mine.txt")
    (workspace / result).parent.mkdir(parents=True)
    (workspace / result).touch()
    assert script([str(job), "--workspace", str(workspace)]) == 2
    assert "something else lies there" in capsys.readouterr().err and (workspace / result).is_file()


def test_a_failed_run_says_that_it_can_go_on(script, job, stand_in, tmp_path, capsys):
    stand_in(
        "f = w / 'server/simulate_job/fedmed/checkpoints'; f.mkdir(parents=True); (f / 'round_0.pt').touch()\n"
        "sys.exit(1)"
    )
    assert script([str(job), "--workspace", str(tmp_path / "ws")]) == 1
    assert "--resume continues after the last good round" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "logged", "said"),
    [
        ("", "", "job failed: the process of site site_a is gone: killed, or out of memory?"),
        ("no videos to train on", "", "job failed: site_b: no videos to train on"),  # the cause of both
        (
            "",
            "x - ERROR - Aborting current RUN due to FATAL_SYSTEM_ERROR received: no space left",
            "job failed: Aborting current RUN due to FATAL_SYSTEM_ERROR received: no space left",
        ),
    ],
)
def test_a_site_whose_process_is_gone_ends_a_simulation_that_waits_for_it(
    script, job, stand_in, tmp_path, capsys, monkeypatch, error, logged, said
):
    """Where the server has ended the job, all sites' processes go, and the simulator may take longer to end."""
    monkeypatch.setattr("fedmed.simulation.process.POLL_INTERVAL", 0.1)
    monkeypatch.setattr("fedmed.simulation.process.KILL_GRACE", 0.5)
    stand_in(
        "def worker(site, seconds): return subprocess.Popen([sys.executable, '-c', f'import time; "
        "time.sleep({seconds})', '-m', 'nvflare.private.fed.app.simulator.simulator_worker', '-o', f'{w}/{site}'])\n"
        "f = w / 'site_b/simulate_job/fedmed/progress.jsonl'; f.parent.mkdir(parents=True)\n"
        f"f.write_text(json.dumps({{'event': 'error', 'message': {error!r}}}) + chr(10) if {error!r} else '')\n"
        f"print({logged!r}, flush=True)\n"
        "a, b = worker('site_a', 1), worker('site_b', 3600); a.wait(); time.sleep(3600)"
    )
    started = time.monotonic()
    assert script([str(job), "--workspace", str(tmp_path / "ws")]) == 1
    assert said in capsys.readouterr().err
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("of_a_run", [True, False], ids=["a run's workspace", "a folder of models"])
def test_models_may_lie_in_a_folder_or_in_an_earlier_run(script, job, stand_in, tmp_path, monkeypatch, of_a_run):
    monkeypatch.setenv("FEDMED_MODELS", "of this test, and put back after it")
    stand_in("w.mkdir(); (w / 'seen').write_text(os.environ['FEDMED_MODELS'])")
    folder = tmp_path / "pretraining"
    models = folder / "server/simulate_job/app_server" if of_a_run else folder
    models.mkdir(parents=True)
    line = [str(job), "--workspace", str(tmp_path / "ws"), "--models", str(folder), "--quiet"]
    assert script(line) == 1, "the stand-in leaves no result"
    assert (tmp_path / "ws/seen").read_text() == str(models)


def test_places_may_be_named_from_the_current_folder(script, job, stand_in, tmp_path, monkeypatch):
    """NVFlare's processes work in folders of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDMED_MODELS", f"runs/v0/app_server{os.pathsep}/elsewhere")
    monkeypatch.setenv("FEDMED_SERVER_CONFIG", "server.yaml")
    stand_in("w.mkdir(); (w / 'seen').write_text(json.dumps(dict(os.environ)))")
    assert script([str(job), "--workspace", str(tmp_path / "ws"), "--quiet"]) == 1, "the stand-in leaves no result"
    seen = json.loads((tmp_path / "ws/seen").read_text())
    assert seen["FEDMED_MODELS"] == f"{tmp_path}/runs/v0/app_server{os.pathsep}/elsewhere"
    assert seen["FEDMED_SERVER_CONFIG"] == f"{tmp_path}/server.yaml"
    assert seen["OMP_WAIT_POLICY"] == "PASSIVE", "sites share the cores of one machine"
