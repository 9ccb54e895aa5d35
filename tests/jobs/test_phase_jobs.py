"""The jobs for phases say what their names promise, and each runs a round on small frames."""

import importlib
import json

import numpy as np
import pytest
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.reports.run import read_run
from fedmed.reports.run_page import write_report
from fedmed.reports.run_report import report_of
from fedmed.reports.site_pictures import feature_pictures
from fedmed.settings.site import load_site
from tests.commands import fedmed
from tests.federation.run_folder import result_of, rounds_of
from tests.jobs.demo_sites import foreseen_scores
from tests.shipped import shipped

SITES = {"lap_harbor": "supervised", "lap_bay": "unsupervised", "lap_cliff": "unsupervised", "lap_isle": "evaluate"}
FOUR = dict.fromkeys(("lap_bay", "lap_cliff", "lap_dune", "lap_fjord"), "unsupervised")
TRAINED = ("supervised", "unsupervised")


@pytest.mark.parametrize(
    ("name", "sites", "overlays"),
    [
        ("phases_fedcy", SITES, ["demo"]),
        ("phases_fedcy_gn", SITES, ["demo", "groupnorm"]),
        ("phases_fedcy_paper", {**SITES, **FOUR}, []),
    ],
)
def test_one_hospital_with_labels_and_others_without(name, sites, overlays):
    job = read_job(shipped(name))
    assert job.study.sites == dict(sorted(sites.items())) and job.study.epochs == 1
    rate = ["one_cycle"] if name == "phases_fedcy" else []
    assert job.overlays(job.role("lap_harbor")) == [*overlays, *rate, "guided"]
    assert job.overlays(job.role("lap_bay")) == [*overlays, "cycle"]
    assert job.short_rule["args"]["weighting"] == "samples"
    assert (job.method.role("supervised").sends, job.method.role("unsupervised").sends) == (None, "head")
    assert "\nbuffers: " in job.text, "named, not by habit"
    assert (Bundle(job.study.bundle, overlays).parser()["groups"] is None) == ("groupnorm" not in overlays)


@pytest.mark.parametrize("name", ["phases_fedcy", "phases_fedmatch", "phases_feduda", "phases_fedfixmatch"])
def test_labels_teach_first_and_statistics_stay_at_home(name):
    study = read_job(shipped(name)).study
    assert study.warm_start.rounds >= study.rounds // 3 and study.buffers == {"unsupervised": "local"}
    assert study.select == "mean", "validation, which knows nothing of the others' gain, would choose the warm start"
    assert study.role_overlays == {"supervised": ["one_cycle"]}
    of_site = study.overrides["supervised"]
    assert of_site["cycle_share"] * study.rounds == pytest.approx(study.warm_start.rounds, abs=1), (
        "its rate is low by then"
    )


@pytest.mark.parametrize("name", ["phases_fedcy_paper", "phases_fedcy_gn"])
def test_the_papers_setting_has_neither(name):
    study = read_job(shipped(name)).study
    assert study.warm_start.rounds == 0 and study.buffers == "average" and study.select == "best"


def test_the_published_job():
    """The values of Kassem et al. 2023, Section IV."""
    job = read_job(shipped("phases_fedcy_paper"))
    study = job.study
    assert (study.min_rounds, study.patience, study.select) == (6, 3, "best")
    assert study.encoder == "resnet50-0676ba61.pth" and not study.overrides
    labelled, other = (Bundle(study.bundle, job.overlays(job.role(s))).parser() for s in ("lap_harbor", "lap_bay"))
    for parser in (labelled, other):
        assert (parser["learning_rate"], parser["weight_decay"]) == (5e-5, 5e-5)
        assert (parser["frame_rate"], parser["image_size"]) == (1.0, [224, 224])
    assert (labelled["batch_size"], labelled["contrast_weight"], labelled["contrast_temperature"]) == (64, 10.0, 0.1)
    assert (other["batch_size"], other["clip_size"], other["clip_strategy"]) == (2, 16, "partition")
    assert (other["cycle_weight"], other["cycle_temperature"], other["variance_weight"]) == (10.0, 0.05, 1e-3)
    assert (other["max_grad_norm"], other["distinct_videos"], other["frame_index"]) == (None, False, "position")


def small(job, tiny_phases):
    """The job with the hospitals that the tests have, small frames and one round."""
    overrides = {**tiny_phases, **{role: {**tiny_phases[role], "learning_rate": 1e-3} for role in TRAINED}}
    short = {"rounds": 1, "min_rounds": 0, "warm_start": {}, "role_overlays": {}, "select": "best"}
    return job.changed({"sites": SITES, **short, "overrides": overrides})


@pytest.fixture(scope="module")
def workspace(tiny_site_configs, tiny_phases, tmp_path_factory):
    """One round of the job on the tiny hospitals."""
    folder = tmp_path_factory.mktemp("phases")
    run_job(write_job(small(read_job(shipped("phases_fedcy")), tiny_phases), folder / "job"), folder / "ws")
    return folder / "ws"


def test_one_round(workspace):
    (line,) = rounds_of(workspace)
    assert sorted(line["accepted"]) == ["lap_bay", "lap_cliff", "lap_harbor"] and not line["refused"]
    result = result_of(workspace)
    assert all(0 <= result["test"][site]["f1_mean"] <= 1 for site in SITES)


UNSCORED = {"patience": None, "select": "last", "evaluate": False, "evaluate_first": False}


def test_a_round_with_groupnorm(tiny_site_configs, tiny_phases, tmp_path):
    job = small(read_job(shipped("phases_fedcy_gn")), tiny_phases).changed(UNSCORED)
    server = run_job(write_job(job, tmp_path / "job"), tmp_path / "ws")
    assert not any("running" in name for name in server.tensors)


def test_a_round_of_the_published_job_with_a_narrow_network(tiny_site_configs, tiny_phases, tmp_path, fedmed_home):
    """From a file of weights with such a network's names, as torchvision would write them."""
    job = read_job(shipped("phases_fedcy_paper"))
    made = dict(Bundle(job.study.bundle, ["demo"]).parser()["network_def"])
    narrow = {name: made[name] for name in ("layers", "widths", "block", "stem_pool")}
    network = importlib.import_module("surgical_phase.phase_net").PhaseNet(6, **narrow)
    saved = network.features.state_dict()
    (fedmed_home / "models").mkdir(exist_ok=True)
    torch.save(saved, fedmed_home / "models" / "narrow.pth")
    job = small(job, tiny_phases).changed({"overlays": ["demo"], "encoder": "narrow.pth", **UNSCORED})
    server = run_job(write_job(job, tmp_path / "job"), tmp_path / "ws")
    moved = (server.tensors["features.conv1.weight"] - saved["conv1.weight"]).abs().max()
    assert 0 < moved < 0.02, "a few steps from the file's weights"


def test_a_site_can_foresee_every_number_that_it_sends(workspace, tiny_site_configs):
    sent = result_of(workspace)["test"]["lap_bay"]
    assert set(sent) <= foreseen_scores(read_job(shipped("phases_fedcy")), load_site("lap_bay"))


def test_the_ledger_tells_that_features_left_and_no_classifier(workspace, capsys):
    assert fedmed("site", "ledger")([str(workspace / "lap_bay")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    sent = [json.loads(line) for line in next(workspace.glob("lap_bay/**/ledger.jsonl")).read_text().splitlines()]
    (update,) = [line for line in sent if line["answer"] == "update"]
    assert update["tensors"] and all(name.startswith("features.") for name in update["tensors"])
    assert f"lap_bay sent 1 update with {len(update['tensors'])} tensors" in text and ".mp4" not in text


@pytest.mark.usefixtures("no_svg")
def test_the_report_shows_shares_and_ribbons(workspace, tmp_path):
    html, pngs = write_report(workspace, tmp_path)
    names, text = {path.stem for path in pngs}, html.read_text()
    assert {"aggregation", "curves", "confusion", "slices_lap_bay", "features_lap_bay", "features_lap_isle"} <= names
    assert "lap_bay and lap_cliff send the features alone, which are averaged; the rest is that of lap_harbor." in text


def test_every_site_keeps_how_both_models_see_its_frames(workspace):
    """The server's records have scores of the starting model, and no point of any frame."""
    result = result_of(workspace)
    assert set(result["test_first"]) == set(SITES) and "points" not in json.dumps(result)
    for site in SITES:
        of_site = next(one for one in read_run(workspace).sites if one.name == site)
        first, selected = feature_pictures(of_site).values()
        assert first.phases.tolist() == selected.phases.tolist() and len(first.phases) > 20
        assert not np.allclose(first.points, selected.points) or result["best_round"] == -1
        assert result["test_first"][site]["n_frames"] == result["test"][site]["n_frames"]


def test_the_table_of_sites_fits_a_terminal(workspace):
    table = report_of(run := read_run(workspace)).table(run)
    assert [column.header for column in table.columns] == ["site", "labels", "cases", "F1", "± std", "accuracy"]


def test_the_run_becomes_a_bundle(workspace, tmp_path):
    made = export_bundle(workspace, tmp_path / "phases_classification")
    card = (made.out / "docs/README.md").read_text()
    assert "the classifier comes from labelled sites alone" in card and "{{" not in card
    assert "training frames)" in card and "sites without labels send all but group head" in card
    assert "own predictions" not in card, "nobody learns from these"
