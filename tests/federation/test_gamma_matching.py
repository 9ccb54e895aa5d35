"""Whole federations whose sites tell one another how bright their images are."""

import json

import pytest

from fedmed.durable_files import load_tensors
from fedmed.errors import JobError
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.privacy.ledger import read_ledger

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
PLAN = {"rounds": 3, "steps": 1, "warm_start": {"rounds": 1}}
METHOD = {"path": "fedmed.methods.agreement.Agreement"}
ALLOWED = ("agreed_share", "mean_scores", "intensity_shares")


@pytest.fixture
def job(tiny_job, lively):
    def job(**changes):
        study = {"sites": SITES, "method": METHOD, "overrides": lively, "algorithm": "gamma_matching", **PLAN}
        return tiny_job("tiny", **{**study, **changes})

    return job


def rounds(workspace):
    text = (workspace / "server/simulate_job/fedmed/rounds.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def gammas(workspace, site):
    state = load_tensors(workspace / site / "simulate_job/fedmed/state/round_2.pt")["engine"]["corrections"]
    return next(entry["state"]["gammas"] for entry in state if entry["path"].endswith("MatchedGamma"))


def test_a_site_that_trains_later_is_asked_before_the_first_round(job, allow_extras, seen, tmp_path):
    allow_extras(*ALLOWED)
    run_job(job(), tmp_path / "ws")
    first, *later = rounds(tmp_path / "ws")
    assert set(first["bytes_told"]) == set(SITES) and set(first["bytes_told"].values()) == {400}
    assert not first["warnings"] and not any("bytes_told" in line for line in later)
    told = {(site, task.round): len(task.extras["others"]) for site, task, _ in seen if "others" in task.extras}
    assert told == {("ct_north", 0): 2, ("ct_south", 0): 2, ("ct_east", 1): 2}
    assert all(0.4 <= gamma <= 2.5 for site in SITES for gamma in gammas(tmp_path / "ws", site))
    lines = [line for line in read_ledger(tmp_path / "ws" / "ct_east") if line["answer"] == "metadata"]
    assert [line["extras"] for line in lines] == [{"intensity_shares": "float32 100"}]


def test_an_interrupted_run_ends_as_one_without_interruption(job, allow_extras, tmp_path, monkeypatch):
    allow_extras(*ALLOWED)
    run_job(folder := job(), tmp_path / "whole")
    train = Client.train

    def killed(self, task):
        if task.round == 1:
            raise KeyboardInterrupt
        return train(self, task)

    monkeypatch.setattr(Client, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        run_job(folder, tmp_path / "cut")
    monkeypatch.setattr(Client, "train", train)
    run_job(folder, tmp_path / "cut", None, True)
    one, other = (load_tensors(tmp_path / ws / "server/simulate_job/app_server/FL_global_model.pt")["model"]
                  for ws in ("whole", "cut"))  # fmt: skip
    assert all(one[name].equal(other[name]) for name in one)


def test_where_nobody_tells_the_job_ends_before_it_trains(job, allow_extras, tmp_path):
    allow_extras("agreed_share", "mean_scores")
    with pytest.raises(JobError, match=r"no site sent intensity_shares.*allowed_extras: \[intensity_shares\]"):
        run_job(job(), tmp_path / "ws")
