"""Whole federations in which sites without labels learn where two models agree."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.warm_starts import site_answer
from fedmed.files import SHARED_ROUNDS
from fedmed.jobs.control_study import control_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.methods.control_kinds import ADAPTED, LEFT_OUT, SILENT
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.settings.site import load_site
from fedmed.systems.agreement.method import Agreement
from tests.federation.run_folder import model_of, result_of, rounds_of, same

pytestmark = pytest.mark.usefixtures("no_charts")

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
METHOD = {"path": "fedmed.systems.agreement.method.Agreement"}
PLAN = {"rounds": 3, "steps": 1, "warm_start": {"rounds": 1}}


@pytest.fixture
def allow(tiny_site_configs, tmp_path, monkeypatch):
    """Return a function: sites of a tiny federation whose own settings let these values leave."""

    def allow(*names, without=()):
        folder = tmp_path / "sites"
        folder.mkdir(exist_ok=True)
        for site in SITES:
            facts = yaml.safe_load((tiny_site_configs / f"{site}.yaml").read_text())
            listed = [] if site in without else list(names)
            (folder / f"{site}.yaml").write_text(yaml.safe_dump({**facts, "privacy": {"allowed_extras": listed}}))
        monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(folder))

    return allow


@pytest.fixture
def job(tiny_job, lively):
    def job(name="tiny", args=None, **changes):
        method = {**METHOD, "args": args or {}}
        return tiny_job(name, **{"sites": SITES, "method": method, "overrides": lively, **PLAN, **changes})

    return job


ALL = [value.name for value in Agreement(gate=True, align=True).values()]


@pytest.fixture
def without_validation(tmp_path):
    """Return a function: sites, whose own settings the test has written -> they have no validation list any more."""

    def without_validation(*sites):
        for site in sites:
            file = Path(os.environ["FEDMED_SITE_CONFIGS"]) / f"{site}.yaml"
            lists = json.loads(load_site(site).datalist.read_text())
            del lists["validation"]
            (tmp_path / f"{site}.json").write_text(json.dumps(lists))
            file.write_text(file.read_text() + f"datalist: {tmp_path / site}.json\n")

    return without_validation


def test_labelled_sites_judge_but_for_one_without_a_validation_list_which_trains(
    job, allow, without_validation, caplog, tmp_path
):
    allow(*ALL)
    without_validation("ct_south")
    run_job(job(args={"gate": True}, evaluate=False), tmp_path / "ws")
    first, second, third = rounds_of(tmp_path / "ws")
    assert "trust" not in first and second["trust"] == 1.0 and second["strength"] == 1.0
    assert {"score_with", "score_without"} <= third.keys() and set(third["accepted"]) == set(SITES)
    # A model goes down to three sites; in the last round the labelled sites' mean goes to each of them as well.
    assert second["bytes_down"] < 1.01 * third["bytes_down"] / 2
    assert third["extras"]["ct_east"]["agreed_share"] == third["sites"]["ct_east"]["train_agreed_fraction"] > 0
    assert "has no 'validation' list" in caplog.text and "site 'ct_south' scores no model" in caplog.text
    result = result_of(tmp_path / "ws")
    assert result["selected_by"] == ["ct_north"] and result["best_round"] is not None
    assert "fixed probability" not in str(third["warnings"])
    shown = page(read_run(tmp_path / "ws"))
    assert "halves the weight" in shown and "ct_south" in shown


def test_where_no_site_has_a_validation_list_and_one_may_send_nothing_beside_the_model_it_is_said(
    job, allow, without_validation, caplog, tmp_path
):
    allow(*ALL, without=("ct_east",))
    without_validation("ct_north", "ct_south")
    run_job(job(args={"gate": True}, evaluate=False), tmp_path / "ws")
    _, second, third = rounds_of(tmp_path / "ws")
    assert second["coefficients"]["ct_east"] == 1.0 and set(third["accepted"]) == set(SITES)
    assert "counts by its images alone" in str(third["warnings"])
    assert "what the models agree on counts from a fixed probability of 0.9 on" in str(third["warnings"])
    assert "has no 'validation' list" in caplog.text
    assert "score_with" not in third and result_of(tmp_path / "ws")["best_round"] is None
    assert "ct_south" in page(read_run(tmp_path / "ws"))


def test_where_no_site_may_send_anything_beside_the_model_it_is_said(job, allow, tmp_path):
    allow()
    run_job(job(args={"gate": True}, evaluate=False), tmp_path / "ws")
    *_, third = rounds_of(tmp_path / "ws")
    assert "nobody judges" in str(third["warnings"]) and "score_with" not in third
    assert "what the models agree on counts from a fixed probability of 0.9 on" in str(third["warnings"])


def test_a_silent_site_costs_nothing(job, allow, unscored, tmp_path):
    """Its weight is 0 in effect: the model is that of the labelled sites alone, bit for bit."""
    allow(*ALL)
    control = control_job(read_job(job("whole")), kind=SILENT)
    run_job(write_job(control, tmp_path / "silent_job"), tmp_path / "silent")
    run_job(job("alone", sites={**SITES, "ct_east": "evaluate"}), tmp_path / "alone")
    assert same(model_of(tmp_path / "silent"), model_of(tmp_path / "alone"))


def test_the_control_that_adapts_trains_nothing_and_is_that_in_which_silent_sites_took_part(
    job, allow, monkeypatch, tmp_path
):
    """Its models are those of the control that leaves sites out, its scores those of sites that adapt."""
    allow(*ALL, "intensity_shares")
    monkeypatch.setattr("fedmed.training.corrections.gamma.matching_gamma", lambda local, others: 4.0)  # none is alike
    monkeypatch.setattr(Client, "_score", lambda self, task, model: {"val_dice": 0.5})  # the last model is tested
    trained, train = [], Client.train
    monkeypatch.setattr(Client, "train", lambda self, task: trained.append(self.site.site) or train(self, task))
    folder = job("whole", adaptation="intensity", rounds=2, select="last")
    with monkeypatch.context() as patch:
        patch.setattr(Agreement, "moved_by_silent", lambda self, rule: True)
        took_part = write_job(control_job(read_job(folder), kind=ADAPTED), tmp_path / "took_part_job")
    run = read_job(folder)
    run_job(took_part, tmp_path / "took_part")
    assert "ct_east" in trained
    monkeypatch.setenv(SHARED_ROUNDS, str(tmp_path / "rounds"))
    for kind in (LEFT_OUT, ADAPTED):
        trained.clear()
        answers = {}

        def answer(client, task, answers=answers):
            site = client.site.site
            return answers.setdefault(site, site_answer(site, client.job))(client, task)

        run_job(write_job(control_job(run, kind=kind), tmp_path / f"{kind}_job"), tmp_path / kind, answer=answer)
        assert trained == (["ct_north", "ct_south"] * 2 if kind == LEFT_OUT else [])
    assert same(model_of(tmp_path / ADAPTED), model_of(tmp_path / "took_part"))
    scores = [result_of(tmp_path / name)["test"] for name in (LEFT_OUT, ADAPTED, "took_part")]
    assert scores[1] == scores[2] != scores[0]
    assert not any("test_own" in result_of(tmp_path / kind) for kind in (LEFT_OUT, ADAPTED))


@pytest.mark.slow
def test_nvflare_equals_the_loop(job, allow, lively, tmp_path):
    """The labelled sites' mean, the gate, the classes' shares and what sites report go through NVFlare as they are."""
    allow(*ALL)
    sites = {"ct_north": "supervised", "ct_east": "unsupervised"}
    folder = job(sites=sites, evaluate=False, overlays=["demo", "coarse"], args={"gate": True, "align": True})
    command = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(folder), "-w", str(tmp_path / "flare")]
    run = subprocess.run([*command, "-t", "2"], capture_output=True, text=True, timeout=1800, cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    run_job(folder, tmp_path / "loop")
    assert same(model_of(tmp_path / "flare"), model_of(tmp_path / "loop"))
    kept = ("trust", "strength", "score_with", "score_without", "extras", "coefficients", "bytes_down", "bytes_up")
    flare, loop = ([[line.get(k) for k in kept] for line in rounds_of(tmp_path / name)] for name in ("flare", "loop"))
    assert flare == loop and loop[2][2] is not None
