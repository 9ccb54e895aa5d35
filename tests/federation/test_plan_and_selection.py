"""Roles by round, and the choice of the model that is kept."""

import pytest
import torch

from fedmed.bundles.score import DICE
from fedmed.federation.selection import ModelSelection
from fedmed.jobs.plan import Plan

SITES = {"b": "supervised", "a": "supervised", "u": "unsupervised", "e": "evaluate"}


def test_unsupervised_sites_sit_out_the_warm_start():
    plan = Plan(SITES, rounds=3, steps=1, warm_start_rounds=2)
    assert plan.participants(1) == ["a", "b"]
    assert plan.participants(2) == ["a", "b", "u"]
    assert (plan.needed(1), plan.needed(2)) == (2, 3)


def test_min_clients_never_asks_for_more_than_take_part():
    plan = Plan(SITES, rounds=3, steps=1, warm_start_rounds=1, min_clients=3)
    assert (plan.needed(0), plan.needed(1)) == (2, 3)


def test_selection_uses_labelled_sites_only_and_keeps_the_earlier_on_a_tie():
    selection = ModelSelection(["a", "b"], DICE)
    first, second = {"w": torch.zeros(1)}, {"w": torch.ones(1)}

    def offer(round, tensors, **scores):
        return selection.offer(round, {site: {"val_dice": s} for site, s in scores.items()}, tensors, round, {"a": 0})

    assert offer(-1, first, a=0.2, b=0.4, u=0.9) == (pytest.approx(0.3), True)
    assert offer(0, second, a=0.4, b=0.2) == (pytest.approx(0.3), False)
    assert offer(1, second, a=0.9) == (None, False)
    assert selection.best_round == selection.best_model == -1 and selection.best_tensors is first
    assert selection.best_scores == {"a": 0.2, "b": 0.4, "u": 0.9} and selection.best_private == {"a": 0}
    assert offer(2, second, a=0.4, b=0.4) == (0.4, True)


def test_a_site_that_answers_without_a_score_does_not_select_while_a_silent_one_is_waited_for(caplog):
    selection, model = ModelSelection(["a", "b", "c"], DICE), {"w": torch.zeros(1)}
    assert selection.offer(0, {"a": {}, "b": {}, "u": {"val_dice": 0.9}}, model, 0, {}) == (None, False)
    assert selection.offer(1, {"a": {"val_dice": 0.2}, "b": {}}, model, 1, {}) == (None, False)
    assert selection.sites == ["a", "c"] and "'b' scores no model" in caplog.text
    scored = {"a": {"val_dice": 0.2}, "b": {}, "c": {"val_dice": 0.4}}
    assert selection.offer(2, scored, model, 2, {}) == (pytest.approx(0.3), True)
    assert caplog.text.count("scores no model") == 1


def test_without_labels_the_last_aggregate_is_the_result_and_nobody_validates():
    plan = Plan({"u": "unsupervised"}, rounds=3, epochs=0.5, select="last", evaluate=False)
    assert plan.participants(0) == ["u"] and not plan.validates(0)
    assert not Plan(SITES, rounds=3, steps=1, select="last").validates(0)
    assert not plan.exchanges(2)
    exchanging = Plan(SITES, rounds=3, steps=1, exchange={"from_round": 1, "names": ["mu"]})
    assert [exchanging.exchanges(round) for round in range(3)] == [False, True, True]


@pytest.mark.parametrize(("rounds", "expected"), [([0], [True, False, False]), ([1], [False, True, False])])
def test_an_exchange_may_be_of_one_round_in_which_all_that_train_at_some_time_are_asked(rounds, expected):
    plan = Plan(SITES, rounds=3, steps=1, warm_start_rounds=2, exchange={"rounds": rounds, "names": ["mu"]})
    assert [plan.exchanges(round) for round in range(3)] == expected and plan.told_once
    assert plan.asked(rounds[0]) == plan.participants(2) != plan.participants(rounds[0])
    from_then_on = Plan(SITES, rounds=3, steps=1, warm_start_rounds=2, exchange={"from_round": 0, "names": ["mu"]})
    assert not from_then_on.told_once and from_then_on.asked(0) == from_then_on.participants(0)
