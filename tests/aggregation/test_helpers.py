"""Choice of helpers; nothing of a site that does not answer reaches another."""

import pytest
import torch

from fedmed.aggregation.rule import RoundFacts
from fedmed.aggregation.weighted_mean import UniformWeighting, WeightedMean
from fedmed.errors import JobError, UpdateRefused
from fedmed.messages.answers import Update
from fedmed.systems.fixmatch.server import MeanWithHelpers, nearest

ROLES = {"l": "supervised", **dict.fromkeys("abcd", "unsupervised"), "e": "evaluate"}
ANSWERS = {"a": [0.5, 0.5], "b": [0.6, 0.4], "c": [0.9, 0.1], "d": [0.1, 0.9]}
MODEL = {"sigma.w": torch.tensor([1.0, 2.0]), "psi.w": torch.tensor([10.0, 20.0])}


def updates(silent=()):
    """σ moves by 5; ψ of the four by 1, 2, 3 and 4, of 1 to 4 images."""
    result = [Update("l", 0, {"sigma.w": torch.full((2,), 5.0)}, 1, 100)]
    for number, (site, answer) in enumerate(ANSWERS.items(), 1):
        extras = {} if site in silent else {"noise_answer": torch.tensor(answer)}
        result.append(Update(site, 0, {"psi.w": torch.full((2,), float(number))}, 1, number, {}, extras))
    return result


def rule(**values):
    return MeanWithHelpers(WeightedMean(UniformWeighting()), **values)


def test_nearest_worked_out_by_hand():
    """Along one line at .5, .6, .9 and .1: of a, b is .1 away, c and d .4; the latter by name."""
    result = nearest({site: torch.tensor(answer).double() for site, answer in ANSWERS.items()}, 2)
    assert result == {"a": ["b", "c"], "b": ["a", "c"], "c": ["b", "a"], "d": ["a", "b"]}
    assert nearest({"a": torch.ones(2)}, 2) == {} and nearest({}, 2) == {}
    assert nearest({"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(2)}, 2) == {"a": ["c"], "c": ["a"]}


def test_parts_are_means_of_their_senders_and_helpers_get_what_each_trained():
    outcome = rule().aggregate(MODEL, updates(), RoundFacts(0, 20, ROLES))
    assert outcome.tensors["sigma.w"].tolist() == [6.0, 7.0], "the labelled site's, whole"
    assert outcome.tensors["psi.w"].tolist() == [12.5, 22.5], "the mean of four, whatever their images"
    assert set(outcome.values) == set("abcd") and outcome.facts["helpers"]["d"] == ["a", "b"]
    (first, second) = outcome.values["d"]["helpers"]
    assert first["psi.w"].tolist() == [11.0, 21.0] and second["psi.w"].tolist() == [12.0, 22.0]
    assert set(first) == {"psi.w"}


def test_they_come_every_some_rounds():
    given = [bool(rule(every=4).aggregate(MODEL, updates(), RoundFacts(r, 20, ROLES)).values) for r in range(9)]
    assert [round for round, some in enumerate(given) if some] == [0, 4, 8]


def test_a_site_that_does_not_answer_helps_nobody_and_is_told():
    outcome = rule(helpers=3).aggregate(MODEL, updates(silent="b"), RoundFacts(0, 20, ROLES))
    assert outcome.facts["helpers"] == {"a": ["c", "d"], "c": ["a", "d"], "d": ["a", "c"]} and "b" not in outcome.values
    ((sites, reason),) = outcome.warnings
    assert sites == ["b"] and "does not send 'noise_answer'" in reason
    assert outcome.tensors["psi.w"].tolist() == [12.5, 22.5], "in the mean it counts as before"


def test_order_changes_nothing():
    one, other = (rule().aggregate(MODEL, sent, RoundFacts(0, 20, ROLES)) for sent in (updates(), updates()[::-1]))
    assert one.facts == other.facts and all(torch.equal(one.tensors[name], other.tensors[name]) for name in MODEL)


@pytest.mark.parametrize("answer", [0.5, torch.tensor([[0.5]]), torch.tensor([float("nan")]), torch.tensor([7.0])])
def test_answers_that_cannot_be_meant(answer):
    with pytest.raises(UpdateRefused, match="'noise_answer' must be a list of numbers from 0 to 1"):
        rule().check_update(Update("a", 0, {}, 1, 1, {}, {"noise_answer": answer}))


@pytest.mark.parametrize("values", [{"helpers": 0}, {"every": 1.5}, {"every": True}])
def test_numbers_out_of_range(values):
    with pytest.raises(JobError, match="give a whole number from 1 on"):
        MeanWithHelpers(**values)
