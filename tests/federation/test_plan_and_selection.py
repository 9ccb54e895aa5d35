"""Roles by round, and the choice of the model that is kept."""

from types import SimpleNamespace

import pytest
import torch

from fedmed.bundles.score import DICE
from fedmed.federation.exchange import Exchange
from fedmed.federation.selection import ModelSelection
from fedmed.jobs.study import Named, Study
from fedmed.methods.declarations import Exchanged

SITES = {"b": "supervised", "a": "supervised", "u": "unsupervised", "e": "evaluate"}


def study_of(sites=None, **said):
    said = {"steps": 1, **said}
    return Study(name="x", bundle="b", method=Named(path="m"), sites=sites or SITES, rounds=3, **said)


def test_unsupervised_sites_sit_out_the_warm_start():
    study = study_of(warm_start={"rounds": 2})
    assert study.participants(1) == ["a", "b"]
    assert study.participants(2) == ["a", "b", "u"]
    assert (study.needed(1), study.needed(2)) == (2, 3)


def test_min_clients_never_asks_for_more_than_take_part():
    study = study_of(warm_start={"rounds": 1}, min_clients=3)
    assert (study.needed(0), study.needed(1)) == (2, 3)


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
    study = study_of({"u": "unsupervised"}, select="last", evaluate=False)
    assert study.participants(0) == ["u"] and not study.validates(0)
    assert not study_of(select="last").validates(0)
    assert not Exchanged().in_round(2)
    assert [Exchanged(("mu",), 1).in_round(round) for round in range(3)] == [False, True, True]


@pytest.mark.parametrize(("round", "expected"), [(0, [True, False, False]), (1, [False, True, False])])
def test_an_exchange_may_be_of_one_round_in_which_all_that_train_at_some_time_are_asked(round, expected):
    once = Exchanged(("mu",), round, once=True)
    assert [once.in_round(number) for number in range(3)] == expected
    study = study_of(warm_start={"rounds": 2})
    requested = Exchange(SimpleNamespace(study=study, exchange=once)).sites_at(round)
    assert requested == study.participants(2) != study.participants(round)
    from_then_on = Exchange(SimpleNamespace(study=study, exchange=Exchanged(("mu",))))
    assert not from_then_on.once and from_then_on.sites_at(0) == study.participants(0)
