"""Requests for private layers, and checks of the answers."""

import json
import re
from types import SimpleNamespace

import pytest
import torch

from fedmed.bundles.score import DICE
from fedmed.federation.client import hand_out
from fedmed.federation.server import Server
from fedmed.federation.workflow import Closing
from fedmed.messages.answers import Release, Update
from fedmed.messages.task import Task
from fedmed.recovery.site_state import SiteState

SITES = {"a": "supervised", "b": "supervised", "u": "unsupervised", "e": "evaluate"}
MODEL = {"encoder.weight": torch.tensor([1.0, -2.0]), "decoder.weight": torch.tensor([[0.5]])}
DECODER = {"decoder.weight": torch.tensor([[7.0]])}
NORMS = {f"{part}.norm.running_mean": torch.tensor([3.0]) for part in ("encoder", "decoder")}


@pytest.fixture
def make(job_of, tmp_path):
    """Return a function that trains three rounds of fakes; the aggregate of round ``best`` scores highest."""

    def make(best=1, model=MODEL, samples=None, **said):
        reported = {"score": DICE, "calibration": None, "overlays": [], "parser": dict}
        bundle = SimpleNamespace(name="b_segmentation", digest="d1", version="1", kind="segmentation_3d", **reported)
        store = SimpleNamespace(
            bundle=bundle, groups={"full": [], "head": [r"^decoder\."]}, seed=0, checkpoint=None, taken=[], folder="no"
        )
        store.initial = {name: tensor.clone() for name, tensor in model.items()}
        store.kept = []
        store.keep_mean = lambda *content: store.kept.append(content)
        store.describe, store.save, store.classes_learnt = dict, lambda *content: None, ()
        said = {"sharing": "head", "release_from": "a", "min_clients": 1, **said}
        server = Server(job_of(name="x", sites=SITES, rounds=3, steps=4, **said), store, tmp_path)
        for round in range(3):
            tasks = server.train_tasks(round)
            for site in tasks:
                names = server.policies.of(SITES[site], round).sent(model)
                difference = {name: torch.full_like(model[name], 0.1) for name in names}
                score = {"val_dice": 0.9 if best == round - 1 else 0.1} if SITES[site] == "supervised" else {}
                server.accept(Update(site, round, difference, 4, (samples or {}).get(site, 10), score))
            server.finish_round()
        closing = Closing(server)
        closing.finish_validation({site: {"val_dice": 0.9 if best == 2 else 0.1} for site in "ab"})
        return closing

    return make


def released(closing, name="selected", answer=None):
    """The sites that are scored and the record of the request."""
    tasks = closing.release_tasks(name)
    default = {s: Release(s, task.private_round, True, dict(DECODER)) for s, task in tasks.items()}
    closing.take_release(default if answer is None else answer, name)
    return set(closing.evaluation_tasks(name)), closing.personal_layers.records[-1]


@pytest.mark.parametrize(("name", "round"), [("selected", 1), ("last", 2)])
def test_the_layers_that_belong_to_the_tested_model_are_asked_for(make, name, round):
    closing = make(best=1)
    task = closing.release_tasks(name)["a"]
    assert (task.name, task.private_round, task.tensors) == ("release", round, {})
    scored, entry = released(closing, name)
    assert scored == set(SITES) and entry["round"] == round and entry["bytes_up"] == 4 and entry["bytes_down"] == 8


def test_both_models_may_be_asked_for_and_the_result_says_whose_decoder(make, tmp_path):
    closing = make(best=1)
    for name in ("last", "selected"):
        released(closing, name)
    scores = {site: {"dice_mean": 0.5, "dice_std": 0.0, "n_cases": 1} for site in SITES}
    closing.finish(scores, {"last": scores})
    result = json.loads((tmp_path / "result.json").read_text())
    for test in ("test", "test_last"):
        assert [result[test][site].get("decoder_of") for site in "abeu"] == [None, None, "a", "a"]
    assert [entry["model"] for entry in result["releases"]] == ["last", "selected"]


def test_statistics_that_a_site_trained_itself_are_not_replaced_by_the_owners(make):
    """``buffers: local``: the unlabelled site has statistics of the shared encoder, the unseen one has none."""
    model = {**MODEL, **NORMS}
    closing = make(model=model, buffers="local")
    private = {"decoder.weight": torch.tensor([[7.0]]), **NORMS}
    requested = closing.release_tasks()
    closing.take_release({"a": Release("a", requested["a"].private_round, True, private)})
    tasks = closing.evaluation_tasks()
    assert model.keys() - tasks["u"].tensors.keys() == {"encoder.norm.running_mean"}
    assert tasks["u"].private_round == 1, "where the site finds its own statistics"
    assert tasks["e"].tensors.keys() == model.keys() and tasks["e"].private_round is None
    assert tasks["u"].tensors["decoder.norm.running_mean"] is private["decoder.norm.running_mean"]


def test_a_site_none_of_whose_updates_was_accepted_has_no_layers_to_be_scored_with(make, tmp_path, caplog):
    closing = make(release_from=None)
    for private in (closing.selection.best_private, closing.server.last_round):
        del private["b"]
    assert set(closing.evaluation_tasks()) == {"a"}
    assert "site 'b' is not scored: it has no trained private layers: none of its updates entered" in caplog.text
    closing.finish({"a": {"dice_mean": 0.5, "n_cases": 1}})
    untested = json.loads((tmp_path / "result.json").read_text())["untested"]
    assert untested == {
        "b": "none of its updates entered the model", "e": "it trains nothing", "u": "it trained them without labels"
    }  # fmt: skip


def test_lent_layers_are_dropped_after_the_evaluation(make):
    closing = make()
    released(closing)
    assert set(closing.evaluation_tasks()) == {"a", "b"}


def test_nobody_is_asked_without_need_or_for_what_was_never_trained(make):
    shared = make(best=0, warm_start={"rounds": 1, "sharing": "full"})
    assert shared.release_tasks() == {} and set(shared.evaluation_tasks()) == set(SITES)
    assert make(release_from=None).release_tasks() == {}
    scored, entry = released(make(best=-1))
    assert scored == {"a", "b"} and "not trained private layers" in entry["reason"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "did not answer"),
        ({"b": Release("b", 1, True, DECODER)}, "did not answer"),
        ({"a": Release("a", 1)}, "does not allow it"),
        ({"a": Release("a", 0, True, DECODER)}, "of round 0, round 1 was asked for"),
        ({"a": Release("a", 1, True, {})}, "'decoder.weight' is missing"),
        ({"a": Release("a", 1, True, MODEL)}, "'encoder.weight' is not in"),
        ({"a": Release("a", 1, True, {"decoder.weight": torch.zeros(3)})}, r"arrived as \(3,\)"),
        ({"a": Release("a", 1, True, {"decoder.weight": torch.full((1, 1), torch.nan)})}, "NaN"),
    ],
)
def test_an_unusable_answer_leaves_the_others_unscored_and_is_named(make, answer, reason, caplog):
    scored, entry = released(make(best=1), answer=answer)
    assert scored == {"a", "b"} and not entry["released"]
    assert re.search(reason, entry["reason"]) and "site 'a' released no private layers" in caplog.text


ALL = {"release_from": "all", "release_weights": "samples"}
OF = {"a": torch.tensor([[7.0]]), "b": torch.tensor([[1.0]])}


def answers_of(closing, name="selected", without=(), **changes):
    """Answers of both sites, but for those in ``without``, who refuse."""
    requested = closing.release_tasks(name)
    return {
        site: Release(site, task.private_round, site not in without,
                      {} if site in without else {"decoder.weight": OF[site].clone()}, **changes)
        for site, task in requested.items()
    }  # fmt: skip


def scored(closing, answers, name="selected"):
    closing.take_release(answers, name)
    return closing.evaluation_tasks(name), closing.personal_layers.records[-1]


@pytest.mark.parametrize(
    ("samples", "weights", "mean"),
    [({"a": 30, "b": 10}, "samples", 5.5), ({"a": 30, "b": 10}, "uniform", 4.0), ({"a": 1, "b": 2}, "samples", 3.0)],
)
def test_the_mean_of_all_sites_scores_those_without_layers(make, caplog, samples, weights, mean):
    closing = make(samples=samples, **{**ALL, "release_weights": weights})
    answers = answers_of(closing)
    assert set(answers) == {"a", "b"}
    tasks, entry = scored(closing, answers)
    assert set(tasks) == set(SITES)
    for site in "ue":
        lent = tasks[site].tensors["decoder.weight"]
        assert lent.item() == pytest.approx(mean) and lent.dtype == torch.float32
        assert all(lent.data_ptr() != answer.tensors["decoder.weight"].data_ptr() for answer in answers.values())
    assert [answers[site].tensors["decoder.weight"].item() for site in "ab"] == [7.0, 1.0], "averaged in place"
    assert "decoder.weight" not in tasks["a"].tensors
    numbers = {"a": 1, "b": 1} if weights == "uniform" else samples
    shares = {site: number / sum(numbers.values()) for site, number in numbers.items()}
    assert entry["released"] and entry["weights"] == shares and entry["weighting"] == weights
    assert (entry["from"], entry["asked"], entry["rounds"]) == ("all", ["a", "b"], {"a": 1, "b": 1})
    assert (entry["bytes_up"], entry["bytes_down"], entry["refused"]) == (8, 8, {})
    for said in ("site 'a' released its 1", "site 'b' released its 1", "scored with the mean of those of a 0."):
        assert said in caplog.text
    assert not closing.personal_layers._tensors, "held after the evaluation"


def test_one_that_refuses_is_named_and_nobody_is_scored_with_the_others(make, tmp_path):
    closing = make(**ALL)
    tasks, entry = scored(closing, answers_of(closing, without="b"))
    assert set(tasks) == {"a", "b"} and not entry["released"]
    assert "does not allow it" in entry["refused"]["b"] and "release_partial" in entry["reason"]
    partial = make(**ALL, release_partial=True)
    tasks, entry = scored(partial, answers_of(partial, without="b"))
    assert set(tasks) == set(SITES) and entry["weights"] == {"a": 1.0} and set(entry["refused"]) == {"b"}
    assert torch.equal(tasks["e"].tensors["decoder.weight"], OF["a"])
    nobody = make(**ALL, release_partial=True)
    tasks, entry = scored(nobody, answers_of(nobody, without="ab"))
    assert set(tasks) == {"a", "b"} and "nobody is left" in entry["reason"]


def test_a_site_that_does_not_say_its_samples_needs_equal_weights(make):
    closing = make(samples={"a": 10, "b": 0}, **ALL)
    tasks, entry = scored(closing, answers_of(closing))
    assert set(tasks) == {"a", "b"} and "'n_samples' among" in entry["refused"]["b"]
    closing = make(samples={"a": 10, "b": 0}, release_from="all", release_weights="uniform")
    assert scored(closing, answers_of(closing))[1]["weights"] == {"a": 0.5, "b": 0.5}


def test_nobody_is_asked_in_vain(make):
    """No site releases layers when one has none for the model."""
    closing = make(**ALL)
    del closing.selection.best_private["b"]
    assert closing.release_tasks() == {}
    assert "not trained private layers" in closing.personal_layers.records[-1]["refused"]["b"]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_mean_is_kept_only_if_every_site_allows_it(make, allowed, caplog):
    closing = make(**ALL, release_keep=True)
    assert all(task.keep for task in closing.release_tasks().values())
    answers = answers_of(closing, keep=True)
    answers["b"].keep = allowed
    _, entry = scored(closing, answers)
    kept = closing.server.store.kept
    assert entry["kept"] is allowed and len(kept) == allowed
    if allowed:
        ((round, tensors, meta),) = kept
        assert round == 1 and tensors["decoder.weight"].item() == 4.0
        assert meta == {"weighting": "samples", "weights": {"a": 0.5, "b": 0.5}}
        assert "is kept for an export" in caplog.text
    else:
        assert "b did not allow it ('allow_kept_release'" in entry["not_kept"]


def test_who_has_which_layers_changes_no_bit(make):
    outcome = []
    for turned in (False, True):
        closing = make(samples={"a": 10, "b": 10} if turned else {"b": 10, "a": 10}, **ALL)
        answers = answers_of(closing)
        if turned:
            answers["a"].tensors, answers["b"].tensors = answers["b"].tensors, answers["a"].tensors
            answers = dict(reversed(answers.items()))
        outcome.append(scored(closing, answers)[0]["e"].tensors["decoder.weight"])
    assert torch.equal(*outcome)


def test_only_the_sites_own_settings_open_the_door(tmp_path, caplog):
    state = SiteState(tmp_path)
    state.save(4, DECODER, optimizer={"lr": 1.0})
    task = Task("release", 4, 5, {}, private_round=4)
    site = SimpleNamespace(site="a", source="a.yaml", allow_release=False, allow_kept_release=False)
    assert hand_out(site, state, task) == Release("a", 4, False, {})
    assert "nothing is released, because 'allow_release' is not true in a.yaml" in caplog.text
    site.allow_release = True
    answer = hand_out(site, state, task)
    assert answer.allowed and answer.tensors.keys() == DECODER.keys() and not answer.keep
    assert "releases its 1 private tensors of round 4 (4 bytes)" in caplog.text and "allowed by a.yaml" in caplog.text
    site.allow_kept_release, task.keep = True, True
    assert hand_out(site, state, task).keep and "keep the mean of all sites' for an export: allowed True" in caplog.text
