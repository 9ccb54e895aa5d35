"""The mean of the labelled sites, and what others add to it: numbers by hand, properties, bad input."""

import itertools
import math

import pytest
import torch
from torch import tensor

from fedmed.aggregation.rule import ExpectedSenders, RoundFacts
from fedmed.errors import JobError, RoundFailed, UpdateRefused
from fedmed.messages.answers import Update
from fedmed.systems.agreement.server import LabelledMean

ROLES = {"a": "supervised", "b": "supervised", "u": "unsupervised", "v": "unsupervised", "w": "evaluate"}
MODEL = {"w": tensor([1.0, 1.0])}


def update(site, change, steps=1, images=10, **extras):
    return Update(site, 3, {"w": tensor(change)}, steps, images, {}, extras)


def labelled(**extras):
    return [update("a", [1.0, 0.0], **extras), update("b", [3.0, 2.0], **extras)]


mean = LabelledMean


def moved(rule, *others, updates=None, model=None, round=3):
    facts = RoundFacts(round, 10, ROLES)
    return rule.aggregate(model or MODEL, [*(labelled() if updates is None else updates), *others], facts)


def test_correct_worked_out_by_hand():
    """L = 1 + [2, 1]; the unlabelled mean differs by [-1, 2] from the model."""
    result = moved(mean(strength=0.5), update("u", [-1.0, 2.0]))
    assert result.tensors["w"].tolist() == [2.5, 3.0]
    assert result.facts == {"trust": 1.0, "strength": 0.5}
    assert result.coefficients == {"a": 0.5, "b": 0.5, "u": 0.5}


def test_join_worked_out_by_hand():
    """20 labelled images; u has 30 and agrees on half of its voxels: 15 of 35."""
    result = moved(mean(combine="join"), update("u", [-1.0, 2.0], images=30, agreed_share=0.5))
    share = 15 / 35
    expected = [3 + share * (0 - 3), 2 + share * (3 - 2)]
    assert result.tensors["w"].tolist() == pytest.approx(expected)
    assert result.facts["strength"] == pytest.approx(share)


def test_average_is_the_mean_by_steps():
    result = moved(mean(combine="average"), update("u", [-1.0, 2.0], steps=2))
    assert result.tensors["w"].tolist() == pytest.approx([1 + (1 + 3 - 2) / 4, 1 + (0 + 2 + 4) / 4])


def test_unlabelled_sites_count_by_images_times_agreement():
    others = update("u", [4.0, 0.0], images=10, agreed_share=0.9), update("v", [0.0, 4.0], images=90, agreed_share=0.1)
    result = moved(mean(strength=1.0), *others)
    assert result.tensors["w"].tolist() == pytest.approx([3 + 2, 2 + 2])
    assert result.coefficients == pytest.approx({"a": 0.5, "b": 0.5, "u": 0.5, "v": 0.5})


def test_a_silent_site_changes_nothing_and_costs_nothing():
    silent = moved(mean(), update("u", [0.0, 0.0]))
    alone = moved(mean())
    assert torch.equal(silent.tensors["w"], alone.tensors["w"])


def test_without_other_sites_it_is_the_mean_of_the_labelled():
    result = moved(mean(gate=False))
    assert result.tensors["w"].tolist() == [3.0, 2.0] and result.facts == {} and result.values == {}


@pytest.mark.parametrize("combine", ["correct", "join", "average"])
def test_the_order_of_updates_changes_no_bit(combine):
    torch.manual_seed(0)
    model = {"w": torch.randn(50), "norm.running_var": torch.rand(5), "n": tensor(3)}
    updates = []
    for site in "abuv":
        tensors = {"w": torch.randn(50) / 3, "norm.running_var": torch.rand(5) / 9, "n": tensor(0)}
        scores = {"mean_scores": torch.rand(2)} if site in "ab" else {"agreed_share": 0.7}
        updates.append(Update(site, 3, tensors, 3, 7, {}, scores))
    result = [mean(combine=combine).aggregate(model, order, RoundFacts(3, 10, ROLES))
             for order in itertools.permutations(updates)]  # fmt: skip
    for other in result[1:]:
        assert all(torch.equal(other.tensors[name], result[0].tensors[name]) for name in model)
        assert other.facts == result[0].facts


def test_correct_leaves_buffers_to_the_labelled_sites():
    model = {"norm.running_var": tensor([1.0]), "norm.num_batches_tracked": tensor(4), "w": tensor([0.0])}

    def sent(site, change):
        tensors = {"norm.running_var": tensor([change]), "norm.num_batches_tracked": tensor(2), "w": tensor([change])}
        return Update(site, 0, tensors, 1, 10)

    facts = RoundFacts(0, 10, ROLES)
    result = mean(strength=2).aggregate(model, [sent("a", 0.5), sent("u", -0.9)], facts).tensors
    assert result["norm.running_var"].item() == 1.5 and result["norm.num_batches_tracked"].item() == 6
    assert result["w"].item() == pytest.approx(0.5 - 1.8)


def test_a_tensor_that_only_labelled_sites_send_is_theirs():
    model = {"w": tensor([1.0, 1.0]), "head": tensor([5.0])}
    with_head = [Update(s, 3, {"w": tensor([1.0, 0.0]), "head": tensor([2.0])}, 1, 10) for s in "ab"]
    for combine in ("correct", "join", "average"):
        result = moved(mean(combine=combine), update("u", [1.0, 1.0]), updates=with_head, model=model)
        assert result.tensors["head"].item() == 7.0


def test_the_strength_grows_over_the_ramp_and_survives_a_restart():
    rule = mean(strength=0.5, ramp_rounds=4)
    result = []
    for round in range(6):
        result.append(moved(rule, update("u", [1.0, 1.0]), round=round).facts["strength"])
        again = mean(strength=0.5, ramp_rounds=4)
        again.restore(rule.state())
        rule = again
    assert result == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]


def test_harm_lowers_the_weight_and_survives_a_restart():
    rule = mean(strength=0.8)
    harmful = labelled(mean_scores=tensor([0.5, 0.6]))
    assert moved(rule, update("u", [1.0, 1.0]), updates=harmful).facts == pytest.approx(
        {"trust": 0.5, "strength": 0.4, "score_with": 0.5, "score_without": 0.6}
    )
    again = mean(strength=0.8)
    again.restore(rule.state())
    assert moved(again, update("u", [1.0, 1.0])).facts["trust"] == 0.5
    careless = mean(strength=0.8, careful=False)
    assert moved(careless, update("u", [1.0, 1.0]), updates=harmful).facts["trust"] == 1.0


def test_what_goes_with_the_next_tasks():
    """L to all that train, the mean of the confidences to sites without labels."""
    updates = [update("a", [1.0, 0.0], label_confidence=tensor([0.9, 0.6])),
               update("b", [3.0, 2.0], label_confidence=tensor([0.7, 0.8]))]  # fmt: skip
    values = moved(mean(), update("u", [-1.0, 2.0]), updates=updates).values
    assert set(values) == {"a", "b", "u", "v"}
    assert all(value["labelled_mean"]["w"].tolist() == [3.0, 2.0] for value in values.values())
    assert values["v"]["gate"].tolist() == pytest.approx([0.8, 0.7]) and "gate" not in values["a"]
    warm = moved(mean(), updates=updates).values
    assert set(warm) == {"u", "v"} and set(warm["u"]) == {"gate"}  # the model itself is the labelled mean
    assert "gate" not in moved(mean(gate=False), update("u", [1.0, 1.0]), updates=updates).values["u"]
    assert set(moved(mean(careful=False), update("u", [1.0, 1.0])).values) == {"u", "v"}


def test_shares_of_classes_go_to_sites_without_labels():
    updates = [update("a", [1.0, 0.0], label_shares=tensor([0.9, 0.1])), update("b", [1.0, 0.0])]
    values = moved(mean(), update("u", [1.0, 1.0]), updates=updates).values
    assert values["v"]["class_shares"].tolist() == pytest.approx([0.9, 0.1]) and "class_shares" not in values["a"]


def test_tensors_that_nobody_sends_stay_out_of_the_labelled_mean():
    model = {**MODEL, "private": tensor([9.0])}
    result = moved(mean(), update("u", [1.0, 1.0]), model=model)
    assert set(result.values["u"]["labelled_mean"]) == {"w"}


def test_a_site_that_agrees_nowhere_does_not_count_in_this_round():
    result = moved(mean(), update("u", [9.0, 9.0], agreed_share=0.0))
    assert result.tensors["w"].tolist() == [3.0, 2.0] and result.facts["strength"] == 0
    assert (["u"], "the models agree nowhere in its images; it does not count in this round") in result.warnings
    both = moved(mean(), update("u", [9.0, 9.0], agreed_share=0), update("v", [2.0, 2.0], agreed_share=0.5))
    assert both.tensors["w"].tolist() == [4.0, 3.0]


def test_a_site_that_may_not_send_its_share_counts_by_images():
    result = moved(mean(), update("u", [4.0, 0.0], images=30), update("v", [0.0, 4.0], images=90, agreed_share=1 / 3))
    assert result.tensors["w"].tolist() == pytest.approx([3 + 1, 2 + 1])
    assert any(sites == ["u"] and "counts by its images alone" in reason for sites, reason in result.warnings)


def test_where_nobody_judges_it_is_said():
    rule = mean()
    assert not any("judges" in reason for _, reason in moved(rule, update("u", [1.0, 1.0], agreed_share=1)).warnings)
    result = moved(rule, update("u", [1.0, 1.0], agreed_share=1))
    assert any(sites == ["a", "b"] and "nobody judges" in reason for sites, reason in result.warnings)


@pytest.mark.parametrize(
    ("confidences", "gate", "named", "said"),
    [
        ({"a": [0.9, 0.6], "b": [0.7, 0.1, 0.2]}, [0.75], ["a", "b"], "of another number of classes"),
        ({}, [0.75], ["a", "b"], "counts from a fixed probability of 0.75 on"),
        ({"a": [0.9, 0.6]}, [0.9, 0.6], ["b"], "the gate is that of the others"),
    ],
)
def test_a_gate_without_the_confidences_of_all_labelled_sites_is_told(confidences, gate, named, said):
    updates = labelled()
    for sent in updates:
        sent.extras |= {"label_confidence": tensor(confidences[sent.site])} if sent.site in confidences else {}
    result = moved(mean(fixed_gate=0.75), update("u", [1.0, 1.0]), updates=updates)
    assert result.values["u"]["gate"].tolist() == pytest.approx(gate) and "gate" not in result.values["a"]
    assert any(sites == named and said in reason for sites, reason in result.warnings)
    assert not any("confidence" in reason for _, reason in moved(mean(gate=False), update("u", [1.0, 1.0])).warnings)


@pytest.mark.parametrize("share", [-0.1, 1.01, 1e30, math.nan, math.inf, "1", True, None, tensor([0.5])])
def test_a_share_that_cannot_be_meant_is_refused(share):
    with pytest.raises(UpdateRefused, match="u.*'agreed_share'.*must be a number from 0 to 1"):
        mean().check_update(update("u", [1.0, 1.0], agreed_share=share))


@pytest.mark.parametrize("name", ["label_confidence", "label_shares", "mean_scores"])
@pytest.mark.parametrize("value", [tensor([0.5, 2.5]), tensor([math.nan, 1]), tensor(0.5), 0.5, [0.1, 0.2], tensor([])])
def test_reports_of_labelled_sites_that_cannot_be_meant_are_refused(name, value):
    with pytest.raises(UpdateRefused, match=f"a.*'{name}'.*must be"):
        mean().check_update(update("a", [1.0, 1.0], **{name: value}))
    mean().check_update(update("a", [1.0, 1.0], **{name: tensor([0.5, 1.0])}))


def test_noise_that_a_site_adds_does_not_cost_it_its_update():
    noisy = [update("a", [1.0, 0.0], label_confidence=tensor([1.2, -0.1]), mean_scores=tensor([1.1, 0.4]))]
    mean().check_update(noisy[0])
    result = moved(mean(), update("u", [1.0, 1.0]), updates=noisy)
    assert result.values["u"]["gate"].tolist() == [1.0, 0.0] and result.facts["score_with"] == 1.0


def test_a_round_without_a_labelled_update_fails():
    with pytest.raises(RoundFailed, match="labelled site"):
        moved(mean(), update("u", [1.0, 1.0]), updates=[])


def test_a_federation_without_a_labelled_site_is_refused():
    with pytest.raises(JobError, match="'supervised'"):
        mean().check(ExpectedSenders({"u": "unsupervised"}, {"u": ["w"]}))
    mean().check(ExpectedSenders(ROLES, {site: ["w"] for site in "abuv"}))


def test_an_overflow_leaves_the_model():
    with pytest.raises(RoundFailed, match="not finite"):
        moved(mean(strength=2), update("u", [3e38, 0.0]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("combine", "add"),
        ("strength", 0),
        ("strength", 3),
        ("strength", True),
        ("ramp_rounds", -1),
        ("fixed_gate", 1.5),
    ],
)
def test_options_that_cannot_be_meant(name, value):
    with pytest.raises(JobError, match=f"'{name}'"):
        mean(**{name: value})
