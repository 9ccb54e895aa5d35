"""FedMoCo's jobs say what their names promise, and one leads to the next."""

import pytest
import torch
import yaml

from fedmed.errors import JobError
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.jobs.study_text import changed_text
from fedmed.recovery.model_store import ModelStore
from fedmed.systems.fedmoco.method import SELF_ADAPTIVE
from tests.federation.run_folder import model_of, result_of, rounds_of
from tests.jobs.demo_sites import demo_site
from tests.shipped import CHECKOUT, shipped

FEDMOCO = {"path": "fedmed.systems.fedmoco.method.FedMoCo"}
PRETRAINING = ["cxr_fedmoco", "cxr_fedmoco_six", "cxr_fedmoco_paper", "cxr_fedavg_moco"]
DOWNSTREAM = ["cxr_linear", "cxr_finetune"]


@pytest.mark.parametrize("name", PRETRAINING + DOWNSTREAM)
def test_all_roles_have_the_same_overlays(name):
    job = read_job(shipped(name))
    assert job.study.bundle == "cxr_classification"
    assert all(job.overlays(role) == job.overlays(job.model_role) for role in job.study.sites.values())


@pytest.mark.parametrize("name", PRETRAINING)
def test_pre_training_needs_no_labels(name):
    job = read_job(shipped(name))
    assert set(job.study.sites.values()) == {"unsupervised"}
    assert job.study.select == "last" and not job.study.evaluate
    assert job.overlays(job.model_role)[-1] == "pretrain"


def test_fedmoco_is_fedavg_with_its_two_additions():
    """Equal seed, schedule and augmentation; different weights, and metadata (Dong and Voiculescu 2021, Eq. 4-7)."""
    ours, plain = read_job(shipped("cxr_fedmoco")), read_job(shipped("cxr_fedavg_moco"))
    assert ours.bundle("unsupervised").overlays == plain.bundle("unsupervised").overlays
    assert ours.overrides("unsupervised") == plain.overrides("unsupervised")
    adaptive = {"by": SELF_ADAPTIVE, "name": "rsa", "form": "gap", "floor": 0.0}
    assert plain.short_rule["args"] == {"weighting": "samples"}
    assert ours.short_rule == {**plain.short_rule, "args": {"weighting": adaptive}}
    of_site = {key: value for key, value in ours.recorded.items() if value != plain.recorded.get(key)}
    assert of_site.pop("method")["path"] == "fedmed.systems.fedmoco.method.FedMoCo"
    assert of_site == {"name": "cxr_fedmoco"} and not plain.exchange.names
    assert (ours.exchange.first_round, ours.exchange.names) == (6, ("mu", "sigma", "n"))


def test_six_nodes_are_halves_of_the_three():
    three, six = (read_job(shipped(name)).recorded for name in ("cxr_fedmoco", "cxr_fedmoco_six"))
    assert sorted(six["sites"]) == sorted(f"{site}_{half}" for site in three["sites"] for half in (1, 2))
    assert {**six, "sites": 0, "name": 0} == {**three, "sites": 0, "name": 0}


def test_the_papers_schedule():
    """Dong and Voiculescu 2021: one local epoch in each of 200 rounds, metadata after 50."""
    job = read_job(shipped("cxr_fedmoco_paper"))
    assert (job.study.rounds, job.study.epochs, job.exchange.first_round) == (200, 1, 50)
    assert job.overlays(job.model_role) == ["pretrain"]


def test_pre_training_needs_a_bundle_that_has_it(job_of, tmp_path):
    job = {"sites": {"a": "unsupervised"}, "rounds": 1, "epochs": 1, "select": "last", "evaluate": False}
    method = {"path": "fedmed.systems.fedmoco.method.FedAvgMoCo"}
    made = job_of(name="x", bundle="cxr_classification", method=method, **job)
    assert made.overlays(made.model_role) == ["pretrain"]
    with pytest.raises(JobError, match="overlay 'pretrain'"):
        write_job(job_of(name="x", bundle="covid_ct_segmentation", method=method, **job), tmp_path / "x")


def test_demo_sites_let_the_values_of_the_method_leave():
    for name in ("cxr_fedmoco_six", "cxr_agreement"):
        job = read_job(shipped(name))
        requested = {value.name for value in job.method.values()}
        for site in job.study.sites:
            values = yaml.safe_load((CHECKOUT / "site_configs" / "demo" / f"{site}.yaml").read_text())
            assert requested and requested <= set(values["privacy"]["allowed_extras"])


def test_agreement_learns_from_two_hospitals_without_labels(fedmed_home, tmp_path):
    folder = tiny(tmp_path, "cxr_agreement", rounds=3, steps=2, warm_start={"rounds": 1}, select="best")
    run_job(folder, tmp_path / "ws", tiny_sites(tmp_path))
    first, _, third = rounds_of(tmp_path / "ws")
    assert first["accepted"] == ["cxr_metro"] and len(third["accepted"]) == 3 and not third["refused"]
    assert third["strength"] == 0.5 * third["trust"] and {"score_with", "score_without"} <= third.keys()
    assert all(0 <= third["extras"][site]["agreed_share"] <= 1 for site in ("cxr_children", "cxr_rural"))
    assert set(result_of(tmp_path / "ws")["test"]) == {"cxr_metro", "cxr_children", "cxr_rural"}


def test_from_images_without_labels_to_a_classifier(fedmed_home, tmp_path, monkeypatch):
    """Each job for a round: the encoder of the first is what the others start from; a linear probe leaves it alone.

    The server's optimizer, by one line, leaves what is frozen: AdamW would decay the encoder of a linear probe, and the
    temperature, which no optimizer trains.
    """
    sites = tiny_sites(tmp_path)
    method = {**FEDMOCO, "args": {"exchange_from": 1}}
    run_job(tiny(tmp_path, "cxr_fedmoco", rounds=2, method=method), tmp_path / "pretraining", sites)
    models = tmp_path / "pretraining/server/simulate_job/app_server"
    monkeypatch.setenv("FEDMED_MODELS", str(models))
    encoder = {k: v for k, v in model_of(tmp_path / "pretraining").items() if k.startswith("encoder.")}
    lines = rounds_of(tmp_path / "pretraining")
    assert all({"rsa", "n"} <= set(extras) for extras in lines[1]["extras"].values())
    for name, trained in zip(DOWNSTREAM, ({"classifier"}, {"classifier", "encoder"}), strict=True):
        folder = tiny(tmp_path, name, rounds=1, epochs=1, server_step="adamw")
        run_job(folder, tmp_path / name, sites)
        result = result_of(tmp_path / name)
        assert all(0 <= row["auroc"] <= 1 and row["n_cases"] for row in result["test"].values())
        start, after = ModelStore(read_job(folder), tmp_path / f"{name}_start").initial, model_of(tmp_path / name)
        same = [torch.equal(start[key], value) for key, value in encoder.items()]
        assert len(same) > 50 and all(same)
        assert {key.split(".")[0] for key, value in after.items() if not torch.equal(value, start[key])} == trained


def tiny_sites(folder):
    means = ["rsa", "mu", "sigma", "n", "intensity_shares", "mean_scores"]
    extras = [*means, "agreed_share", "label_confidence", "label_shares"]
    privacy = {"allowed_extras": extras, "extras_min_images": 8}
    sites = ("cxr_metro", "cxr_rural", "cxr_children")
    return {site: demo_site(folder, site, "chest_xray_tiny", privacy=privacy) for site in sites}


def tiny(folder, name, **values):
    """A copy of a job with little to do."""
    job = write_job(read_job(shipped(name)), folder / "jobs" / name)
    small = {"batch_size": 8, "queue_size": 8, "metadata_min_images": 8, "rsa_samples": 8}
    study = read_job(job).study
    values["overrides"] = {role: {**study.overrides.get(role, {}), **small} for role in set(study.sites.values())}
    for path in job.glob("app_*/config/study.yaml"):
        path.write_text(changed_text(path.read_text(), values))
    return job
