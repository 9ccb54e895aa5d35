"""Whole federations in one process: properties that every method must have, and systems end to end."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedmed.errors import JobError
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.workflow import Closing
from fedmed.jobs.job_folder import read_job
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.site import load_site
from tests.federation.run_folder import kept_of, model_of, read_lines, records, result_of, rounds_of, same

BUNDLES = Path(__file__).resolve().parents[2] / "bundles"
TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}


def test_run_leaves_models_scores_and_progress(tiny_job, tmp_path):
    run_job(tiny_job(), tmp_path / "ws")
    result = result_of(tmp_path / "ws")
    assert set(result["test"]) == {"ct_north", "ct_south", "ct_east", "ct_west"}
    assert all(test["n_cases"] == 3 and 0 <= test["dice_mean"] <= 1 for test in result["test"].values())
    assert result["selected_by"] == ["ct_north", "ct_south"]
    assert sum(result["validation"].values()) / 2 == pytest.approx(result["best_score"])
    assert sum(result["validation_last"].values()) / 2 == pytest.approx(result["last_score"])
    (round,) = rounds_of(tmp_path / "ws")
    assert round["accepted"] == ["ct_east", "ct_north", "ct_south"] and sum(round["coefficients"].values()) == 1
    assert set(round["sites"]["ct_north"]) >= {"val_dice", "train_loss", "n_steps"}
    assert "val_dice" not in round["sites"]["ct_east"]
    assert len(list(csv.DictReader((records(tmp_path / "ws", "ct_west") / "evaluation/cases.csv").open()))) == 3
    events = [line["event"] for line in read_lines(records(tmp_path / "ws", "ct_north") / "progress.jsonl")]
    assert events[0] == "start" and {"step", "validated", "end"} <= set(events)
    assert not same(model_of(tmp_path / "ws"), ModelStore(read_job(tmp_path / "jobs/tiny"), tmp_path).initial)


def test_same_seed_same_model_and_the_unlabelled_site_matters(tiny_job, lively, unscored, tmp_path):
    spec = {"sites": TWO, "overrides": lively}
    for name in ("first", "second"):
        run_job(tiny_job(name, **spec), tmp_path / name)
    run_job(tiny_job("alone", **{**spec, "sites": {"ct_north": "supervised"}}), tmp_path / "alone")
    run_job(tiny_job("other", **spec, seed=1), tmp_path / "other")
    assert same(model_of(tmp_path / "first"), model_of(tmp_path / "second"))
    assert not same(model_of(tmp_path / "first"), model_of(tmp_path / "alone"))
    assert not same(model_of(tmp_path / "first"), model_of(tmp_path / "other"))


def test_partial_sharing_with_a_warm_start_scores_only_sites_with_a_trained_decoder(tiny_job, unscored, tmp_path):
    job = tiny_job(sharing="block_6", warm_start={"rounds": 1, "sharing": "full"}, rounds=2)
    server = run_job(job, tmp_path / "ws")
    # whatever round was best: the question is who can be scored after the warm start
    server.selection.best_round, server.selection.best_private = 1, dict(server.last_round)
    assert set(Closing(server).evaluation_tasks()) == {"ct_north", "ct_south"}
    warm, private = (kept_of(tmp_path / "ws", site, 1)["private"] for site in ("ct_north", "ct_east"))
    initial = ModelStore(read_job(job), tmp_path).initial
    assert private.keys() == warm.keys()
    assert any(not torch.equal(private[name], initial[name]) for name in private), "the warm start did not arrive"


def test_a_site_with_both_lists_uses_both_as_unsupervised_and_says_what_a_supervised_one_leaves_out(
    tiny_job, tmp_path, tiny_site_configs, caplog
):
    both = tmp_path / "both"
    lists = {}
    for name, kept in (("ct_north", ("training", "validation")), ("ct_east", ("unlabeled",))):
        shutil.copytree(load_site(name).data_root, both, dirs_exist_ok=True)
        lists |= {key: json.loads((both / "datalist.json").read_text())[key] for key in kept}
    (both / "datalist.json").write_text(json.dumps(lists))
    job = tiny_job(sites=TWO)
    for name, words in (("ct_east", set()), ("ct_north", {"3 unlabelled scans are not used"})):
        site = replace(load_site(name), data_root=both, datalist=both / "datalist.json")
        task = Task("train", 0, 1, ModelStore(read_job(job), job).initial, steps=2)
        update = Client(read_job(job), site, tmp_path / name).train(task)
        assert ("train_supervised_loss" in update.metrics) == (name == "ct_east")
        assert all(word in caplog.text for word in words)


def test_a_checkpoint_starts_sites_and_their_private_layers(tiny_job, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_BUNDLES", str(tmp_path / "bundles"))
    bundle = shutil.copytree(BUNDLES / "covid_ct_segmentation", tmp_path / "bundles" / "covid_ct_segmentation")
    spec = {"sites": TWO, "sharing": "block_6"}
    with pytest.raises(JobError, match="'start.pt' is not in"):
        run_job(tiny_job("missing", **spec, checkpoint="start.pt"), tmp_path / "missing")
    with pytest.raises(JobError, match="plain file name"):
        run_job(tiny_job("elsewhere", **spec, checkpoint="../../secret.pt"), tmp_path / "elsewhere")
    start = {n: t + 1 for n, t in ModelStore(read_job(tiny_job("plain")), tmp_path).initial.items()}
    (bundle / "models").mkdir(exist_ok=True)
    torch.save(start, bundle / "models" / "start.pt")
    idle = {"supervised": {**read_job(tiny_job("o")).overrides("supervised"), "learning_rate": 0.0}}
    idle["unsupervised"] = {**idle["supervised"], "unsupervised_learning_rate": 0.0}
    run_job(tiny_job("go", **spec, checkpoint="start.pt", overrides=idle), tmp_path / "go")
    assert same(model_of(tmp_path / "go"), start)
    private = kept_of(tmp_path / "go", "ct_east", 0)["private"]
    assert private and all(torch.equal(tensor, start[name]) for name, tensor in private.items())


@pytest.mark.slow
def test_ahnet_with_federated_buffers(tiny_job, unscored, tmp_path):
    """One round of the paper's network at 128×128×32: BatchNorm statistics are averaged, counters counted."""
    sizes = {"batch_size": 1, "patch_size": [128, 128, 32], "window_size": [128, 128, 32], "pixdim": [5.5, 5.5, 12.0]}
    overrides = {role: {**sizes, "window_overlap": 0.0} for role in ("supervised", "unsupervised", "evaluate")}
    job = tiny_job(overlays=[], overrides=overrides, sites=TWO, steps=1)
    run_job(job, tmp_path / "ws")
    final, initial = model_of(tmp_path / "ws"), ModelStore(read_job(job), tmp_path).initial
    counters = [name for name in final if name.endswith("num_batches_tracked")]
    assert counters and all(final[name] == initial[name] + 1 for name in counters)
    means = [name for name in final if name.endswith("running_mean")]
    assert all(torch.isfinite(final[name]).all() for name in final)
    assert sum(not torch.equal(final[name], initial[name]) for name in means) > len(means) // 2
