"""Whole federations whose sites tell one another how bright their images are."""

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.errors import ExportError, JobError
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.privacy.limits import read_ledger
from fedmed.training.corrections.gamma import MatchedGamma
from tests.federation.run_folder import rounds_of

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
PLAN = {"rounds": 3, "steps": 1, "warm_start": {"rounds": 1}}
METHOD = {"path": "fedmed.systems.agreement.method.Agreement"}
ALLOWED = ("agreed_share", "mean_scores", "intensity_shares")


@pytest.fixture
def job(tiny_job, lively):
    def job(**changes):
        study = {"sites": SITES, "method": METHOD, "overrides": lively, "adaptation": "intensity", **PLAN}
        return tiny_job("tiny", **{**study, **changes})

    return job


def gamma(workspace, site):
    state = load_tensors(workspace / site / "simulate_job/fedmed/state/round_2.pt")["engine"].get("corrections", [])
    return [entry["state"]["gamma"] for entry in state if entry["path"].endswith("MatchedGamma")]


def test_sites_with_labels_tell_before_the_first_round_and_the_other_matches(job, allow_extras, seen, tmp_path):
    allow_extras(*ALLOWED)
    run_job(job(), tmp_path / "ws")
    first, *later = rounds_of(tmp_path / "ws")
    assert first["bytes_told"] == {"ct_north": 400, "ct_south": 400}
    assert not first["warnings"] and not any("bytes_told" in line for line in later)
    told = {(site, task.round): len(task.extras["others"]) for site, task, _ in seen if "others" in task.extras}
    assert told == {("ct_east", 1): 2}
    assert not gamma(tmp_path / "ws", "ct_north") and 0.4 <= gamma(tmp_path / "ws", "ct_east")[0] <= 2.5
    lines = {site: [line["extras"] for line in read_ledger(tmp_path / "ws" / site) if line["answer"] == "metadata"]
             for site in SITES}  # fmt: skip
    assert lines == {"ct_north": [{"intensity_shares": "float32 100"}]} | {
        "ct_south": [{"intensity_shares": "float32 100"}], "ct_east": []}  # fmt: skip


def test_a_model_is_scored_with_images_as_bright(job, allow_extras, tmp_path, monkeypatch):
    allow_extras(*ALLOWED)
    shown = []
    monkeypatch.setattr("fedmed.training.corrections.gamma.matching_gamma", lambda own, wanted: 4.0)
    change = MatchedGamma.change_scored_images

    def noted(self, images):
        shown.append(torch.equal(changed := change(self, images), images.clamp(0, 1) ** 2))
        return changed

    monkeypatch.setattr(MatchedGamma, "change_scored_images", noted)
    run_job(job(), tmp_path / "ws")
    assert gamma(tmp_path / "ws", "ct_east") == [2.0] and shown and all(shown)
    with pytest.raises(ExportError, match="no setting is a site's own; leave out --site"):
        export_bundle(tmp_path / "ws", tmp_path / "x_segmentation", model="last", site="ct_north")
    export_bundle(tmp_path / "ws", tmp_path / "x_segmentation", model="last", site="ct_east")
    assert yaml.safe_load((tmp_path / "x_segmentation/configs/inference.yaml").read_text())["image_gamma"] == 2.0


def test_an_interrupted_run_ends_as_one_without_interruption(job, allow_extras, killed_before, same, tmp_path):
    allow_extras(*ALLOWED)
    run_job(folder := job(), tmp_path / "whole")
    with killed_before(1):
        run_job(folder, tmp_path / "cut")
    run_job(folder, tmp_path / "cut", None, True)
    one, other = (tmp_path / ws / "server/simulate_job/app_server/FL_global_model.pt" for ws in ("whole", "cut"))
    assert same(load_tensors(one)["model"], load_tensors(other)["model"])


def test_where_nobody_tells_the_job_ends_before_it_trains(job, allow_extras, tmp_path):
    allow_extras("agreed_share", "mean_scores")
    with pytest.raises(JobError, match=r"no site sent intensity_shares.*allowed_extras: \[intensity_shares\]"):
        run_job(job(), tmp_path / "ws")
