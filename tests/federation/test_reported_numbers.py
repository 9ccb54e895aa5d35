"""Numbers beside the tensors: what cannot be does not count and is named, and no site counts for more than it told."""

import json
import math
from dataclasses import replace

import pytest

from fedmed.bundles.score import DICE
from fedmed.errors import UpdateRefused
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.reported_numbers import ReportedNumbers, ranges_of
from fedmed.federation.selection import ModelSelection, score_weights
from fedmed.jobs.study import Named, Study
from fedmed.kinds.find_kind import installed
from fedmed.messages.answers import Update
from fedmed.systems.covid_fssl.method import Consistency
from tests.federation.run_folder import result_of, rounds_of

TWO = {"ct_north": "supervised", "ct_south": "supervised"}


def reported_numbers(kind="segmentation_3d", classes=("lesion",), **said):
    score = installed()[kind].scores[0]
    length = {} if "epochs" in said else {"steps": 2}
    study = Study(name="x", bundle="b", method=Named(path="m"), sites={"a": "supervised"}, rounds=3, **length, **said)
    return ReportedNumbers(study, ranges_of(installed()[kind](), Consistency(), score, classes))


def update(site="a", n_samples=10, n_steps=2, **metrics):
    return Update(site, 0, {}, n_steps, n_samples, metrics)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("segmentation_3d", "val_dice", 1e9),
        ("segmentation_3d", "val_dice", -0.1),
        ("segmentation_3d", "dice_mean", 1.01),
        ("segmentation_3d", "dice_std", -1.0),
        ("segmentation_3d", "hd95_median", -1.0),
        ("segmentation_3d", "hd95_median", math.inf),
        ("segmentation_3d", "volume_error", -1.0),
        ("classification", "ece", 1.1),
        ("classification", "brier", 2.1),
        ("segmentation_3d", "n_cases", 2.5),
        ("segmentation_3d", "n_cases", -1),
        ("segmentation_3d", "train_loss", math.nan),
        ("segmentation_3d", "train_confident_fraction", 1.5),
        ("segmentation_3d", "seconds", -1.0),
        ("segmentation_3d", "train_anything", 10**400),
        ("segmentation_3d", "val_dice", True),
        ("classification", "val_auroc", 2.0),
        ("classification", "accuracy_high", 1.2),
        ("presence", "val_f1", 1e9),
        ("presence", "tp_lesion", 1.5),
        ("presence", "ap_lesion", 1.5),
        ("phases", "frames_lesion>lesion", -1),
        ("segmentation_2d", "hd95_lesion", -1.0),
        ("segmentation_2d", "dice_lesion", 1.5),
    ],
)
def test_a_number_outside_its_range_does_not_count_and_is_named(kind, name, value):
    kept, wrong = reported_numbers(kind).metrics({name: value, "train_loss_of_another": 3.5})
    assert kept == {"train_loss_of_another": 3.5}
    assert len(wrong) == 1 and name in wrong[0] and "must be" in wrong[0]


@pytest.mark.parametrize("kind", [name for name, kind in installed().items() if kind.labelled])
def test_what_honest_sites_send_counts(kind):
    score = installed()[kind].scores[0]
    honest = dict.fromkeys(installed()[kind]().numbers(["lesion"]), 1)
    honest |= {score.validation: 1.0000001, score.test: 0.0, "n_cases": 5, "n_frames": 100, "train_loss": -2.5}
    honest |= {"hd95_median": 41.5, "hd95_mean": 41.5, "model_round": -1, "seconds": 0.1, "epsilon": 12.0}
    assert reported_numbers(kind).test("a", honest) == (honest, [])


def test_many_wrong_numbers_are_told_in_few_words():
    kept, wrong = reported_numbers().metrics({f"train_{n}": math.nan for n in range(900)})
    assert not kept and len(wrong) == 4 and "897 more" in wrong[-1]


def test_a_test_counts_no_more_cases_than_an_earlier_one_and_no_more_frames_than_there_are():
    reported = reported_numbers("presence")
    assert reported.test("a", {"n_cases": 5, "n_frames": 50, "tp_lesion": 51})[0] == {"n_cases": 5, "n_frames": 50}
    kept, wrong = reported.test("a", {"n_cases": 6, "n_frames": 50})
    assert kept == {"n_frames": 50} and "n_cases is 6, it told of 5" in wrong[0]
    assert reported.test("b", {"n_cases": 6})[0] == {"n_cases": 6}
    assert reported.test("c", {"n_cases": 10**8})[0] == {}


def test_counts_are_held_to_the_first_round_and_to_the_study():
    said = {"epochs": 2, "max_samples": 100}
    reported = reported_numbers(**said)
    for wrong, name in ((update(n_samples=101), "n_samples"), (update(n_steps=201), "n_steps")):
        with pytest.raises(UpdateRefused, match=f"{name} is .*'max_samples' allows"):
            reported.check(wrong)
    reported.check(update(n_samples=100, n_steps=200))
    reported.keep([update(), update("quiet", n_samples=0)])
    held, wrong = reported.bounded(update(n_samples=90, n_steps=3))
    assert (held.n_samples, held.n_steps) == (10, 2) and "it was 10 at first" in wrong[0] and len(wrong) == 2
    assert reported.bounded(update(n_samples=4, n_steps=1))[0].n_samples == 4
    reported.keep([update(n_samples=4)])
    assert reported.samples([update("new", n_samples=7), update(n_samples=90)]) == {"a": 10, "new": 7}
    other = reported_numbers(**said)
    other.restore(json.loads(json.dumps(reported.state())))
    assert other.first == reported.first


def lying(liar, **numbers):
    """Answers of sites of which one reports other numbers."""

    def answer(client, task):
        outcome = Client.answer(client, task)
        if client.site.site != liar or task.name == "release":
            return outcome
        if not isinstance(outcome, Update):
            return {**outcome, **{name: value for name, value in numbers.items() if name in outcome}}
        counts = {name: value for name, value in numbers.items() if name in ("n_samples", "n_steps")}
        metrics = {**outcome.metrics, **{name: value for name, value in numbers.items() if name in outcome.metrics}}
        return replace(outcome, metrics=metrics, **(counts if task.round else {}))

    return answer


def test_a_false_score_chooses_no_model(tiny_job, unscored, tmp_path):
    server = run_job(tiny_job(sites=TWO, rounds=2), tmp_path / "ws", answer=lying("ct_south", val_dice=1e9))
    lines = rounds_of(tmp_path / "ws")
    assert [line["score"] for line in lines] == [0.5, 0.5] and lines[0]["sites"].keys() == TWO.keys()
    (warning,) = [one for one in lines[0]["warnings"] if one["site"] == "ct_south"]
    assert "val_dice is 1e+09, it must be a number from 0 to 1" in warning["message"]
    assert "val_dice" not in lines[0]["sites"]["ct_south"] and server.selection.best_score == 0.5
    result = result_of(tmp_path / "ws")
    assert result["selected_by"] == ["ct_north"] and "val_dice" in result["refused_numbers"]["ct_south"][0]


def test_a_false_count_weighs_no_more(tiny_job, unscored, tmp_path):
    job = tiny_job(sites=TWO, rounds=2, rule={"args": {"weighting": "samples"}})
    run_job(job, tmp_path / "ws", answer=lying("ct_south", n_samples=10**6))
    lines = rounds_of(tmp_path / "ws")
    assert lines[0]["coefficients"] == lines[1]["coefficients"] == {"ct_north": 0.5, "ct_south": 0.5}
    assert "its n_samples is 1000000, it was 3 at first" in lines[1]["warnings"][0]["message"]


def offered(selection, *rounds):
    return [selection.offer(round, scores, {}, round, {})[0] for round, scores in enumerate(rounds)]


def scores(**of_sites):
    return {site: {"val_dice": score} for site, score in of_sites.items()}


def test_a_site_of_few_cases_does_not_choose_alone():
    selection = ModelSelection("abc", DICE)
    selection.images = {"a": 100, "b": 80, "c": 1}
    offered(selection, scores(a=0.8, b=0.8, c=0.0), scores(a=0.7, b=0.7, c=1.0))
    assert selection.best_round == 0
    selection = ModelSelection("abc", DICE)
    selection.images = {"a": 100, "b": 80, "c": 50}  # the same with a site of the usual size
    offered(selection, scores(a=0.8, b=0.8, c=0.0), scores(a=0.7, b=0.7, c=1.0))
    assert selection.best_round == 1


@pytest.mark.parametrize(
    ("reported", "weights"),
    [
        ({}, [1, 1, 1]),
        ({"a": 9, "b": 60, "c": 90}, [1, 1, 1]),  # honest sites that differ
        ({"a": 3, "b": 60, "c": 90}, [0.5, 1, 1]),
        ({"a": 10**7, "b": 60, "c": 60}, [1, 1, 1]),  # a large number buys nothing
        ({"a": 10**7, "b": 60}, [1, 1, 1]),
        ({"b": 60, "c": 3}, [1, 1, 1]),  # of two the smaller is the usual one
        ({"b": 3, "c": 60, "d": 60}, [0.5, 0.5, 1]),  # who tells of none counts as the smallest
    ],
)
def test_the_weight_of_a_score(reported, weights):
    assert list(score_weights("abcd", reported).values())[:3] == weights


def test_a_site_whose_scores_are_refused_later_takes_them_out_of_the_best_one():
    selection = ModelSelection("ab", DICE)
    offered(selection, scores(a=0.5, b=1.0), {"a": {"val_dice": 0.6}, "b": {}})
    assert selection.sites == ["a"] and (selection.best_round, selection.best_score) == (1, 0.6)
