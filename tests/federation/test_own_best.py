"""Each labelled site keeps the received model that it scored best itself, and nothing but scores of it leave."""

from types import SimpleNamespace

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.errors import JobError, StateError
from fedmed.federation.loop import run_job
from fedmed.federation.own_best import OwnBest
from fedmed.messages.task import Task
from fedmed.privacy.limits import read_ledger
from fedmed.recovery.site_state import SiteState
from tests.federation.run_folder import records, result_of, rounds_of

BUNDLE = SimpleNamespace(score=SimpleNamespace(validation="val_dice"), calibration="temperature")


def own_best(folder, **made_with):
    return OwnBest("a", BUNDLE, SiteState(folder, made_with))


def offer(best, round, score, name="train", **metrics):
    """A model that is told by its number; the task that brings it to be trained is of the round after its own."""
    task = Task(name, round + (name == "train"), 9, {})
    tensors = {"w": torch.tensor(float(round)), "temperature": torch.tensor(1.0)}
    best.offer(task, tensors, {"val_dice": score, **metrics})


def kept(best):
    content = best.state.best()
    return content["round"], content["score"], content["tensors"]["w"].item()


def test_the_best_is_kept_whole_with_the_round_that_made_it_and_the_earlier_of_equals(tmp_path):
    best = own_best(tmp_path)
    assert best.state.best() == {}
    for round, score in enumerate((0.2, 0.5, 0.5, 0.4), -1):
        offer(best, round, score)
    assert kept(best) == (0, 0.5, 0.0)
    offer(best, 3, 0.6, "validate", val_temperature=2.0)
    assert kept(best) == (3, 0.6, 3.0) and best.state.best()["tensors"]["temperature"] == 2.0
    best.state.prune([])
    assert kept(best) == (3, 0.6, 3.0)


def test_a_kill_leaves_the_model_before_and_a_new_process_compares_with_it(tmp_path, monkeypatch):
    offer(own_best(tmp_path), -1, 0.5)

    def die(*names):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("os.replace", die)
        offer(own_best(tmp_path), 0, 0.9)
    again = own_best(tmp_path)
    assert kept(again) == (-1, 0.5, -1.0)
    offer(again, 0, 0.4)
    assert kept(again) == (-1, 0.5, -1.0)
    offer(again, 0, 0.9)
    assert kept(again) == (0, 0.9, 0.0)


def test_a_resumed_run_goes_on_from_the_newest_job_and_a_new_one_from_nothing(tmp_path):
    first, second, third = (own_best(tmp_path / id / "fedmed", seed=0) for id in ("first", "second", "third"))
    offer(first, -1, 0.3)
    offer(first, 2, 0.8)
    second.state.earlier = {"first": 3}
    offer(second, 3, 0.7)
    assert kept(second) == (2, 0.8, 2.0)
    offer(second, 4, 0.9)
    third.state.earlier = {"first": 3, "second": 5}
    assert kept(third) == (4, 0.9, 4.0) and kept(first) == (2, 0.8, 2.0)
    offer(third, -1, 0.1)  # a starting model is the beginning of another run in the same folder
    assert kept(third) == (-1, 0.1, -1.0)
    other = own_best(tmp_path / "other" / "fedmed", seed=1)
    other.state.earlier = {"first": 3}
    with pytest.raises(StateError, match="'seed' 0, this job has 1"):
        offer(other, 3, 0.7)


def test_a_task_names_a_model_that_there_is():
    config = Task("evaluate", 1, 2, {}, model="own").config()
    assert Task.from_config(config, {}).model == "own"
    for wrong in ("../own", "best", None, ["own"]):
        with pytest.raises(
            JobError, match="'model' is .*; it must be one of selected, last, first, released, own, alone"
        ):
            Task.from_config({**config, "model": wrong}, {})


def test_labelled_sites_are_tested_with_their_own_best_and_send_its_scores_alone(tiny_job, tmp_path):
    sites = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
    server = run_job(tiny_job(sites=sites, rounds=2, steps=1, sharing="block_6"), tmp_path / "ws")
    fedmed = {site: records(tmp_path / "ws", site) for site in ("server", *server.study.sites)}
    rounds, result = rounds_of(tmp_path / "ws"), result_of(tmp_path / "ws")
    assert set(result["test_own"]) == {"ct_north", "ct_south"}
    for site, local in result["test_own"].items():
        scores = [line["sites"][site]["val_dice"] for line in rounds] + [result["validation_last"][site]]
        best = load_tensors(fedmed[site] / "state/own_best.pt")
        assert (best["round"], best["score"]) == (local["model_round"], max(scores))
        assert best["round"] == scores.index(max(scores)) - 1
        assert set(best["tensors"]) == set(server.store.initial), "its private layers belong to it"
        assert local["n_cases"] == 3 and (fedmed[site] / "evaluation_own/cases.csv").is_file()
        if local["model_round"] == result["best_round"]:
            assert local["dice_mean"] == result["test"][site]["dice_mean"]
        tested = [line for line in read_ledger(tmp_path / "ws" / site) if line["task"] == "evaluate"]
        assert len(tested) == 2 and not any(line["tensors"] or line["extras"] for line in tested)
    assert not (fedmed["ct_east"] / "state/own_best.pt").exists() and not list(fedmed["server"].rglob("own_best*"))


def test_a_single_labelled_site_has_chosen_for_all_and_is_not_asked_twice(tiny_job, tmp_path):
    run_job(tiny_job(sites={"ct_north": "supervised", "ct_west": "evaluate"}), tmp_path / "ws")
    result = result_of(tmp_path / "ws")
    expected = {**result["test"]["ct_north"], "model_round": result["best_round"]}
    assert result["test_own"] == {"ct_north": expected}
    assert [line["task"] for line in read_ledger(tmp_path / "ws/ct_north")].count("evaluate") == 1
