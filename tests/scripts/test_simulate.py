"""The failure paths of fedmed simulate, with a stand-in for the simulator."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.commands import fedmed

SITES = ["site_a", "site_b"]


@pytest.fixture(scope="module")
def script():
    return fedmed("simulate")


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    meta = {"deploy_map": {"app_server": ["server"], "app": SITES}}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Write Python code that runs in place of the simulator; `w` is the workspace."""

    real = sys.executable

    def write(code: str) -> None:
        program = tmp_path / "bin" / "nvflare"
        program.parent.mkdir(exist_ok=True)
        head = "import json, os, subprocess, sys, time\nfrom pathlib import Path\n"
        head += "w = Path(sys.argv[sys.argv.index('-w') + 1])\n"
        program.write_text(f"#!{os.path.realpath(sys.executable)}\n{head}{code}\n")
        program.chmod(0o755)
        python = program.parent / "python"
        python.write_text(f'#!/bin/sh\nexec "{real}" "$@"\n')
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))

    return write


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


SLOW = pytest.mark.slow  # tests/test_interrupts.py ends a process by these signals too


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=SLOW) for n in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_stop_ends_every_process_and_says_where_things_are(job, stand_in, tmp_path, number):
    """NVFlare starts each site in a session of its own, so the group's signal alone would leave it running."""
    process, site = simulation(job, stand_in, tmp_path, stderr=subprocess.PIPE, text=True)
    process.send_signal(number)
    _, printed = process.communicate(timeout=600)
    assert process.returncode == 130
    assert f"what was done so far is in {tmp_path / 'ws'}" in printed
    assert gone(site)


def simulation(job, stand_in, tmp_path, **how):
    """Start a simulation that runs until a test ends it; return its process and that of its site."""
    stand_in(  # a site in a session of its own
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True)\n"
        "(w.parent / 'pid.tmp').write_text(str(child.pid)); (w.parent / 'pid.tmp').rename(w.parent / 'pid')\n"
        "time.sleep(3600)"
    )
    launcher = (  # a shell starts jobs in the background with SIGINT ignored, nohup with SIGHUP; a terminal does not
        "import signal, sys, runpy; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "sys.executable, *sys.argv[1:] = sys.argv[1:]; runpy.run_module('fedmed', run_name='__main__')"
    )
    line = [os.path.join(sys.prefix, "bin", "python"), "-c", launcher, sys.executable, "simulate", str(job)]
    process = subprocess.Popen([*line, "--workspace", str(tmp_path / "ws")], **how)
    until((tmp_path / "pid").exists, seconds=600)
    return process, psutil.Process(int((tmp_path / "pid").read_text()))


@pytest.fixture
def started(job, stand_in, tmp_path):
    """A simulation in a group of processes of its own, and its site's process; it runs until a test ends it."""
    process, site = simulation(job, stand_in, tmp_path, start_new_session=True)
    yield process, site
    process.kill()
    process.wait()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def until(what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.05)
    return what()


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with its group"])
def test_when_it_is_killed_all_that_it_started_ends(script, job, started, stand_in, tmp_path, capsys, kill):
    process, site = started
    kill(process.pid, signal.SIGKILL)
    assert until(lambda: gone(site))
    stand_in("print('ready')")
    until(lambda: script([str(job), "--workspace", str(tmp_path / "ws"), "--quiet"]) == 1)
    assert "ready" in (tmp_path / "ws.log").read_text(), "nobody owns the workspace of a dead process"


def test_a_workspace_at_work_is_refused_and_all_ends_with_the_process_before_the_simulator(
    script, job, started, tmp_path, capsys
):
    """The refusal names its owner's process; then the process between this one and the simulator is killed alone."""
    process, site = started
    before = (tmp_path / "ws.log").stat()
    for options in ([], ["--resume"]):
        assert script([str(job), "--workspace", str(tmp_path / "ws"), *options]) == 2
        error = capsys.readouterr().err
        assert f"is in use by process {process.pid}; wait for its end, stop it, or choose another" in error
    assert not gone(site) and (tmp_path / "ws.log").stat().st_ino == before.st_ino
    (between,) = psutil.Process(process.pid).children()
    between.kill()
    assert process.wait(60) == 1 and until(lambda: gone(site))


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


@pytest.fixture(scope="module")
def runs(finished_run, tmp_path_factory, run_first_round):
    """Folder with a ``job``, its finished ``run``, and its ``control``: finished, and stopped ``half`` way."""
    from fedmed.checks.control_check import write_control
    from fedmed.federation.loop import run_job

    folder = tmp_path_factory.mktemp("both")
    shutil.copytree(finished_run.parent / "study", folder / "job")
    shutil.copytree(finished_run, folder / "run")
    control = write_control(folder / "job", folder / "scratch")
    run_job(control, folder / "control")
    run_first_round(control, folder / "half")
    return folder


COPY = "import shutil; shutil.rmtree(w, ignore_errors=True); shutil.copytree({runs!r} + '/' + {name}, w)\n"
SAME = "('control' if w.name == 'control' else 'run')"


@pytest.fixture
def no_pictures(monkeypatch):
    """PNGs take most of a report's time."""
    monkeypatch.setattr("fedmed.reports.run_page.write_pngs", lambda run, out, figures: [])


def line(runs, workspace, *options):
    return [str(runs / "job"), "--workspace", str(workspace), "--control", *options]


@pytest.mark.parametrize("control", [(), ("--control",)])
@pytest.mark.usefixtures("no_pictures")
def test_a_job_for_sites_without_custom_code_can_be_tried(script, runs, stand_in, tiny_job, tmp_path, capsys, control):
    """NVFlare's simulator loads a class for an app alone that has a folder custom/; the study is the job's."""
    sites = {"ct_north": "supervised", "ct_east": "unsupervised", "ct_west": "evaluate"}
    job = tiny_job(name="study", sites=sites, rounds=2, custom=False)
    code = "job = Path(sys.argv[2]); print(job.name, [any((app / 'custom').glob('*')) for app in job.glob('app_*')])\n"
    code += "print((job / 'app_server/config/study.yaml').read_text())"
    stand_in(COPY.format(runs=str(runs), name=SAME) + code)
    assert script([str(job), "--workspace", str(tmp_path / "ws"), "--quiet", *control]) == 0, capsys.readouterr()
    logs = ["ws.log", "ws/control.log"] if control else ["ws.log"]
    for log in logs:
        text = (tmp_path / log).read_text()
        apps = 3 if "control" in log else 4
        assert f"study {[True] * apps}" in text and "custom: false" in text
    assert not list(job.glob("*/custom"))


@pytest.mark.usefixtures("no_pictures")
def test_a_job_and_its_control_run_one_after_the_other(script, runs, stand_in, tmp_path, capsys):
    code = "print(sys.argv)\nprint('rounds:', os.environ['FEDMED_SHARED_ROUNDS'])"
    stand_in(COPY.format(runs=str(runs), name=SAME) + code)
    assert script(line(runs, tmp_path / "ws", "--threads", "2")) == 0
    printed = capsys.readouterr().out
    assert printed.index("job: 3 sites, 2 threads") < printed.index("study: Dice on each site's test list")
    assert printed.index("study: Dice on each") < printed.index("control: job: 3 sites, 2 threads")
    assert "control: round 2/2 finished" in printed and "\nround 2/2 finished" in printed
    last = printed[printed.rindex("control: round") :]
    assert "ct_east, which has no labels: Dice" in " ".join(last.split()) and "Dice on each site's test" not in last
    assert printed.count("report: ") == 1, "the page is written once, with what joining brought"
    assert "ct_east, which has no labels" in (tmp_path / "ws/report/report.html").read_text()
    assert (tmp_path / "ws/control/report/report.html").is_file()
    assert "simulator" in (tmp_path / "ws/control.log").read_text()
    kept = {path.read_text().split("rounds: ")[1] for path in (tmp_path / "ws.log", tmp_path / "ws/control.log")}
    assert len(kept) == 1 and not Path(kept.pop().strip()).parent.exists(), "one folder for both, gone with them"
    owners = (tmp_path / "ws/ct_east/simulate_job/fedmed/evaluation/patients.csv").read_text().splitlines()
    assert owners[:2] == ["case,patient", "CTE-0004_ct,CTE-0004"]


def test_sites_may_take_part_in_the_control_and_learn_nothing(script, runs, stand_in, tmp_path, capsys):
    code = "print((Path(sys.argv[2]) / 'app_server/config/study.yaml').read_text())"
    stand_in(COPY.format(runs=str(runs), name="'run'") + code)
    options = [str(runs / "job"), "--workspace", str(tmp_path / "ws"), "--silent-control", "--quiet"]
    assert script(options) == 0
    study = (tmp_path / "ws/control.log").read_text()
    assert "silent control" in study and "ct_east: unsupervised" in study and "learning_rate: 0" in study
    assert script([*options, "--control"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_what_two_runs_cannot_tell_is_said_before_the_first(script, runs, stand_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedmed.checks.control_check.unmeasured", lambda job: "ct_east has no list 'testing'")
    stand_in("sys.exit('ERROR: x - ERROR - no space left')\n")
    assert script(line(runs, tmp_path / "ws")) == 1
    said = capsys.readouterr().err
    assert said.index("note: ct_east has no list 'testing'.") < said.index("no space left")


@pytest.mark.usefixtures("no_pictures")
def test_a_control_that_fails_leaves_the_report_and_resume_makes_it(script, runs, stand_in, tmp_path, capsys):
    again = tmp_path / "again"
    stand_in(
        f"again = Path({str(again)!r}).exists()\n"
        "if w.name == 'control' and not again: sys.exit('ERROR: x - ERROR - no space left')\n"
        "if w.name != 'control' and again: sys.exit('must not start')\n"
        + COPY.format(runs=str(runs), name="('control' if again else 'run')")
    )
    assert script(line(runs, tmp_path / "ws", "--quiet")) == 1
    printed = capsys.readouterr()
    assert "the run of job itself is done; only its control is missing" in printed.err
    assert "no space left" in printed.err and "report: " in printed.out
    assert (tmp_path / "ws/report/report.html").is_file()
    again.touch()
    assert script(line(runs, tmp_path / "ws", "--quiet", "--resume")) == 0
    printed = capsys.readouterr().out
    assert "is done; its control is next" in printed and "ct_east, which has no labels" in " ".join(printed.split())
    assert script(line(runs, tmp_path / "ws", "--resume")) == 2
    assert "is finished; there is nothing to resume" in capsys.readouterr().err


def test_an_interrupted_control_goes_on(script, runs, stand_in, tmp_path, capsys):
    shutil.copytree(runs / "run", tmp_path / "ws")
    shutil.copytree(runs / "half", tmp_path / "ws/control")
    stand_in(
        "study = (Path(sys.argv[2]) / 'app_server/config/study.yaml').read_text()\n"
        "print('ERROR: x - ERROR -', 'resume: {job: control.before-1}' in study, os.environ['FEDMED_RESUME_ROOT'], w)"
    )
    assert script(line(runs, tmp_path / "ws", "--resume")) == 1
    printed = capsys.readouterr()
    assert "continues after round 1 of 2" in printed.out
    assert f"True {tmp_path / 'ws'} {tmp_path / 'ws/control'}" in printed.err
    assert (tmp_path / "ws/control.before-1/server").is_dir()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"rounds": 5}, "holds a finished run of another job than"), ({"evaluate": False}, "has no control")],
)
def test_a_control_of_another_job_does_not_start(script, runs, stand_in, tmp_path, capsys, change_study, change, words):
    stand_in("sys.exit('must not start')")
    shutil.copytree(runs / "run", tmp_path / "ws")
    change_study(shutil.copytree(runs / "job", tmp_path / "job"), **change)
    assert script([str(tmp_path / "job"), "--workspace", str(tmp_path / "ws"), "--resume", "--control"]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "ws/control").exists()


@pytest.fixture
def adapting(runs, stand_in, allow_extras, change_study, tmp_path):
    """A job whose sites adapt; runs of it and its controls end at once, but while there is a file ``full``."""
    from fedmed.checks.control_check import write_controls
    from fedmed.jobs.job_folder import read_job
    from fedmed.methods.control_kinds import FOLDERS

    allow_extras("intensity_shares")
    job = change_study(shutil.copytree(runs / "job", tmp_path / "job"), adaptation="intensity")
    made = {FOLDERS[kind]: folder for kind, folder in write_controls(job, tmp_path / "made").items()}
    read = {name: read_job(folder) for name, folder in {"ws": job, **made}.items()}
    facts = {name: {"job": one.name, "config": {"study": one.recorded}} for name, one in read.items()}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    stand_in(
        f"if w.name == 'control_adapted' and Path({str(tmp_path / 'full')!r}).exists():\n"
        "    sys.exit('ERROR: x - ERROR - no space left')\n"
        + COPY.format(runs=str(runs), name=SAME)
        + f"facts = json.loads(Path({str(tmp_path / 'facts.json')!r}).read_text())[w.name]\n"
        "path = w / 'server/simulate_job/fedmed/run.json'\n"
        "path.write_text(json.dumps(json.loads(path.read_text()) | facts))\n"
        "print((Path(sys.argv[2]) / 'app_server/config/study.yaml').read_text())\n"
    )
    return job


@pytest.mark.usefixtures("no_pictures")
def test_a_job_that_adapts_has_two_controls(script, adapting, tmp_path, capsys):
    options = [str(adapting), "--workspace", str(tmp_path / "ws"), "--control"]
    assert script(options) == 0
    printed = " ".join(capsys.readouterr().out.split())
    said = ("job: three trainings", "job: 3 sites", " control: job:", "adapted control: job:")
    begun = [printed.index(words) for words in said]
    assert begun == sorted(begun) and printed.count("report: ") == 1
    assert re.search("ct_east, which has no labels: Dice .* left out, .* adapted, .* with learning: ", printed)
    left, adapted = ((tmp_path / f"ws/{name}.log").read_text() for name in ("control", "control_adapted"))
    assert "ct_east: evaluate" in left and "adaptation: []" in left
    assert "ct_east: unsupervised" in adapted and "adaptation: intensity" in adapted and "learning_rate: 0" in adapted
    assert script([*options, "--resume"]) == 2
    assert "is finished; there is nothing to resume" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "ws/control_adapted")
    assert script([*options, "--resume"]) == 0
    printed = capsys.readouterr().out
    assert "its controls are next" in printed and "\ncontrol: job" not in printed and "adapted control: job" in printed


@pytest.mark.usefixtures("no_pictures")
def test_without_the_control_that_adapts_the_run_is_reported(script, adapting, tmp_path, capsys):
    options = [str(adapting), "--workspace", str(tmp_path / "ws"), "--control", "--quiet"]
    (tmp_path / "full").touch()
    assert script(options) == 1
    printed = capsys.readouterr()
    assert "only its adapted control is missing: the same command with --resume makes it" in printed.err
    assert "three trainings" not in printed.out
    page = (tmp_path / "ws/report/report.html").read_text()
    assert "ct_east, which has no labels" in page and "the control that tells the two apart is missing" in page
    assert script([*options[:-2], "--silent-control", "--resume"]) == 2
    assert re.search("control holds another kind of control, of '--control'", capsys.readouterr().err)


def test_a_folder_in_the_place_of_the_control_is_never_deleted(script, runs, stand_in, tmp_path, capsys):
    stand_in("sys.exit('must not start')")
    shutil.copytree(runs / "run", tmp_path / "ws")
    (tmp_path / "ws/control").mkdir()
    (tmp_path / "ws/control/thesis.tex").touch()
    assert script(line(runs, tmp_path / "ws", "--resume")) == 2
    assert "not an earlier run" in capsys.readouterr().err
