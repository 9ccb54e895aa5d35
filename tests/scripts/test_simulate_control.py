"""fedmed simulate with controls: the runs are made here, and a stand-in for the simulator copies them."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.commands import fedmed

pytestmark = pytest.mark.usefixtures("no_charts", "no_pictures")


@pytest.fixture(scope="module")
def script():
    return fedmed("simulate")


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


def test_a_job_for_sites_without_custom_code_can_be_tried(script, runs, stand_in, tiny_job, tmp_path, capsys):
    """NVFlare's simulator loads a class for an app alone that has a folder custom/; the study is the job's."""
    sites = {"ct_north": "supervised", "ct_east": "unsupervised", "ct_west": "evaluate"}
    job = tiny_job(name="study", sites=sites, rounds=2, custom=False)
    code = "job = Path(sys.argv[2]); print(job.name, [any((app / 'custom').glob('*')) for app in job.glob('app_*')])\n"
    code += "print((job / 'app_server/config/study.yaml').read_text())"
    stand_in(COPY.format(runs=str(runs), name=SAME) + code)
    line = [str(job), "--workspace", str(tmp_path / "ws"), "--quiet", "--control"]
    assert script(line) == 0, capsys.readouterr()
    for log, apps in (("ws.log", 4), ("ws/control.log", 3)):
        text = (tmp_path / log).read_text()
        assert f"study {[True] * apps}" in text and "custom: false" in text
    assert not list(job.glob("*/custom"))


def test_a_job_and_its_control_run_one_after_the_other(script, runs, stand_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedmed.reports.alone.on_screen", lambda run: ["each hospital, alone and together"])
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
    assert printed.count("each hospital, alone and together") == last.count("each hospital") == 1, (
        "the end of the story"
    )
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


def test_a_job_that_adapts_has_two_controls(script, adapting, tmp_path, capsys):
    """Without the one that adapts the run is reported, and the same command with --resume makes that control alone."""
    options = [str(adapting), "--workspace", str(tmp_path / "ws"), "--control"]
    (tmp_path / "full").touch()
    assert script(options) == 1
    printed = capsys.readouterr()
    out = " ".join(printed.out.split())
    said = ("job: three trainings", "job: 3 sites", " control: job:", "adapted control: job:")
    begun = [out.index(words) for words in said]
    assert begun == sorted(begun) and out.count("report: ") == 1
    assert "only its adapted control is missing: the same command with --resume makes it" in printed.err
    page = (tmp_path / "ws/report/report.html").read_text()
    assert "ct_east, which has no labels" in page and "the control that tells the two apart is missing" in page
    assert script([*options[:-1], "--silent-control", "--resume"]) == 2
    assert re.search("control holds another kind of control, of '--control'", capsys.readouterr().err)

    (tmp_path / "full").unlink()
    assert script([*options, "--resume"]) == 0
    out = capsys.readouterr().out
    assert "its controls are next" in out and "\ncontrol: job" not in out and "adapted control: job" in out
    out = " ".join(out.split())
    assert re.search("ct_east, which has no labels: Dice .* left out, .* adapted, .* with learning: ", out)
    assert out.count("report: ") == 1
    left, adapted = ((tmp_path / f"ws/{name}.log").read_text() for name in ("control", "control_adapted"))
    assert "ct_east: evaluate" in left and "adaptation: []" in left
    assert "ct_east: unsupervised" in adapted and "adaptation: intensity" in adapted and "learning_rate: 0" in adapted
    assert script([*options, "--resume", "--quiet"]) == 2
    printed = capsys.readouterr()
    assert "is finished; there is nothing to resume" in printed.err and "three trainings" not in printed.out


def test_a_folder_in_the_place_of_the_control_is_never_deleted(script, runs, stand_in, tmp_path, capsys):
    stand_in("sys.exit('must not start')")
    shutil.copytree(runs / "run", tmp_path / "ws")
    (tmp_path / "ws/control").mkdir()
    (tmp_path / "ws/control/thesis.tex").touch()
    assert script(line(runs, tmp_path / "ws", "--resume")) == 2
    assert "not an earlier run" in capsys.readouterr().err
