"""Whole federations whose sites tell one another how strong the frequencies of their images are."""

import pytest
import torch
import yaml

from fedmed.data.augment.bands import with_factors
from fedmed.durable_files import load_tensors
from fedmed.errors import ExportError, JobError
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.privacy.limits import read_ledger
from fedmed.training.corrections.bands import MatchedBands
from tests.federation.run_folder import rounds_of

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
PLAN = {"rounds": 3, "steps": 1, "warm_start": {"rounds": 1}}
METHOD = {"path": "fedmed.systems.agreement.method.Agreement"}
ALLOWED = ("agreed_share", "mean_scores", "amplitude_bands")


@pytest.fixture
def job(tiny_job, lively):
    def job(**changes):
        chosen = {"adaptation": "amplitude"}
        return tiny_job("tiny", **{"sites": SITES, "method": METHOD, "overrides": lively, **chosen, **PLAN, **changes})

    return job


def factors(workspace, site):
    state = load_tensors(workspace / site / "simulate_job/fedmed/state/round_2.pt")["engine"]["corrections"]
    return next(entry["state"]["factors"] for entry in state if entry["path"].endswith("MatchedBands"))


def test_all_that_train_tell_once_and_each_keeps_its_own_factors(job, allow_extras, seen, tmp_path):
    allow_extras(*ALLOWED)
    run_job(job(), tmp_path / "ws")
    first, *later = rounds_of(tmp_path / "ws")
    assert first["bytes_told"] == dict.fromkeys(SITES, 17 * 4) and not any("bytes_told" in line for line in later)
    told = {(site, task.round): len(task.extras["others"]) for site, task, _ in seen if "others" in task.extras}
    assert told == {("ct_north", 0): 2, ("ct_south", 0): 2, ("ct_east", 1): 2}
    for site in SITES:
        (line,) = (line for line in read_ledger(tmp_path / "ws" / site) if line["answer"] == "metadata")
        assert line["extras"] == {"amplitude_bands": "float32 17"}
        assert factors(tmp_path / "ws", site).shape in {(1, 17), (0,)}
    assert any(len(factors(tmp_path / "ws", site)) for site in SITES)


def test_an_export_is_one_sites_and_sees_images_as_it_was_scored(job, allow_extras, tmp_path, monkeypatch):
    allow_extras(*ALLOWED)
    wanted, shown = torch.linspace(1.5, 0.6, 17)[None].round(decimals=4), []
    monkeypatch.setattr("fedmed.training.corrections.bands.band_factors", lambda *args: wanted)
    change = MatchedBands.change_scored_images

    def noted(self, images):
        shown.append(torch.equal(changed := change(self, images), with_factors(images, wanted)))
        return changed

    monkeypatch.setattr(MatchedBands, "change_scored_images", noted)
    run_job(job(), tmp_path / "ws")
    before = [scan for scan in shown if not scan]  # of the model before the first round, at the two with labels
    assert shown == before + [True] * (len(shown) - len(before)) and len(before) == 2 * 3 < len(shown) / 2
    assert torch.equal(factors(tmp_path / "ws", "ct_north"), wanted)
    with pytest.raises(ExportError, match="images changed in a way of its own.*--site NAME"):
        export_bundle(tmp_path / "ws", tmp_path / "x_segmentation", model="last")
    export_bundle(tmp_path / "ws", tmp_path / "x_segmentation", model="last", site="ct_north", verify=True)
    said = yaml.safe_load((tmp_path / "x_segmentation/configs/inference.yaml").read_text())
    assert torch.equal(torch.tensor(said["image_bands"]), wanted)


def test_where_images_are_alike_the_export_has_no_factors(job, allow_extras, tmp_path, monkeypatch):
    allow_extras(*ALLOWED)
    monkeypatch.setattr("fedmed.training.corrections.bands.band_factors", lambda *args: torch.ones(1, 17))
    run_job(job(), tmp_path / "ws")
    export_bundle(tmp_path / "ws", tmp_path / "x_segmentation", model="last", site="ct_south")
    assert yaml.safe_load((tmp_path / "x_segmentation/configs/inference.yaml").read_text())["image_bands"] is None


def test_an_interrupted_run_ends_as_one_without_interruption(job, allow_extras, killed_before, same, tmp_path):
    allow_extras(*ALLOWED)
    run_job(folder := job(), tmp_path / "whole")
    with killed_before(1):
        run_job(folder, tmp_path / "cut")
    run_job(folder, tmp_path / "cut", None, True)
    one, other = (tmp_path / ws / "server/simulate_job/app_server/FL_global_model.pt" for ws in ("whole", "cut"))
    assert same(load_tensors(one)["model"], load_tensors(other)["model"])


def test_where_no_site_may_tell_the_job_ends_before_it_trains(job, allow_extras, tmp_path):
    allow_extras("agreed_share", "mean_scores")
    with pytest.raises(JobError, match=r"no site sent amplitude_bands.*allowed_extras: \[amplitude_bands\]"):
        run_job(job(), tmp_path / "ws")
