"""fedmed study resume: from what is left of a run to the job that continues it."""

import json
import shutil

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job
from tests.commands import fedmed

ID = "3f1c-old"


@pytest.fixture
def script():
    return fedmed("study", "resume")


@pytest.fixture
def server_run(interrupted):
    """The run's folder at a provisioned server, beside which the sites have theirs."""
    for name in ("server", "ct_north"):
        (interrupted / "ws" / name / "simulate_job").rename(interrupted / "ws" / name / ID)
    return interrupted / "ws/server" / ID


@pytest.fixture
def download(server_run, interrupted):
    """The same as NVFlare hands it out."""
    folder = interrupted / "transfer" / "a-folder-of-any-name"
    shutil.copytree(server_run, folder / "workspace")
    shutil.copytree(interrupted / "study", folder / "job/study")
    (folder / "job/study/.__nvfl_sig.json").write_text("{}")
    (folder / "meta.json").write_text(json.dumps({"job_id": ID}))
    return folder


def test_a_download_becomes_a_job_that_ends_where_an_uninterrupted_run_does(
    script, download, interrupted, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Client, "_score", lambda self, task, parser: {"val_dice": 0.5})
    monkeypatch.setattr(Client, "evaluate", lambda self, task: {"n_cases": 0})
    assert script([str(download), str(tmp_path / "again")]) == 0
    said = capsys.readouterr().out
    assert f"continues job {ID}" in said and "from round 2 of 2; 1 are done" in said
    assert f"ct_north needs its own state of round 1, in {ID}/fedmed/state" in said
    assert not list((tmp_path / "again").rglob(".__nvfl*"))
    assert read_job(tmp_path / "again").study.resume.job == ID
    shutil.rmtree(interrupted / "ws/server" / ID)  # the job itself brings the server's state
    run_job(tmp_path / "again", interrupted / "ws")
    run_job(interrupted / "study", tmp_path / "whole")
    ours, whole = (
        load_tensors(workspace / "server/simulate_job/app_server/FL_global_model.pt")["model"]
        for workspace in (interrupted / "ws", tmp_path / "whole")
    )
    assert all(torch.equal(ours[name], whole[name]) for name in whole)


def test_the_servers_own_folder_needs_the_job_and_can_be_asked_for_more_rounds(
    script, server_run, interrupted, tmp_path, capsys
):
    assert script([str(server_run), str(tmp_path / "again")]) == 2
    assert f"the job folder of '{ID}' is not with its run; give it with --job" in capsys.readouterr().err
    options = ["--job", str(interrupted / "study"), "--rounds", "5", "--allow-fresh", "ct_north"]
    assert script([str(server_run), str(tmp_path / "again"), *options]) == 0
    said = capsys.readouterr().out
    assert "from round 2 of 5" in said and "needs its own state" not in said
    study = read_job(tmp_path / "again").study
    assert study.rounds == 5 and study.resume.fresh == ["ct_north"]
    assert script([str(server_run), str(tmp_path / "again"), *options]) == 2
    assert "exists; choose another or use --replace" in capsys.readouterr().err
    assert script([str(server_run), str(tmp_path / "again"), *options, "--replace"]) == 0


def test_an_id_alone_lets_the_server_look(script, interrupted, tmp_path, capsys):
    assert script(["4711-abc", str(tmp_path / "again"), "--job", str(interrupted / "study")]) == 0
    assert "the server finds it in its own folder" in capsys.readouterr().out
    assert not (tmp_path / "again/app_server/resume").exists()
    assert script(["../4711", str(tmp_path / "other"), "--job", str(interrupted / "study")]) == 2
    assert "is not the id of a job" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: (d / "workspace/fedmed/result.json").write_text("{}"), "is finished; there is nothing to resume"),
        (lambda d: shutil.rmtree(d / "workspace/fedmed/checkpoints"), "If no round was finished, submit the old job"),
        (lambda d: (d / "workspace/fedmed/checkpoints/round_0.pt").write_bytes(b"x"), "checkpoints/round_0.pt is dam"),
        (lambda d: (d / "workspace/fedmed/models/round_0.pt").write_bytes(b"x"), "round_0.pt is damaged"),
        (lambda d: (d / "meta.json").write_text('{"job_id": "../../etc"}'), "is not the id of a job"),
    ],
)
def test_what_cannot_be_continued_is_said_and_nothing_is_written(script, download, tmp_path, capsys, spoil, words):
    spoil(download)
    assert script([str(download), str(tmp_path / "again")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".job-*"))


def test_another_job_or_a_simulators_workspace_is_refused(
    script, download, interrupted, change_study, tmp_path, capsys
):
    change_study(interrupted / "study", seed=1)
    assert script([str(download), str(tmp_path / "again"), "--job", str(interrupted / "study")]) == 2
    assert "'seed' of its study is 1, it was the default" in capsys.readouterr().err
    (interrupted / "ws/server/simulate_job").mkdir()
    assert script([str(interrupted / "ws"), str(tmp_path / "again")]) == 2
    assert "fedmed simulate JOB --resume" in capsys.readouterr().err
