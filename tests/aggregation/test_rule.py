"""The protocol of a server's rule, and a step after the mean."""

import pytest
import torch

from fedmed.aggregation.robust import RobustAggregator
from fedmed.aggregation.rule import ExpectedSenders, RoundFacts, ServerRule
from fedmed.aggregation.weighted_mean import WeightedMean
from fedmed.errors import JobError, RoundFailed, SharingError, StateError
from fedmed.messages.answers import Update

MODEL = {
    "w": torch.tensor([1.0, -2.0]),
    "unsent": torch.tensor([5.0]),
    "bn.running_mean": torch.tensor([0.5]),
    "bn.num_batches_tracked": torch.tensor(3),
}


class Descent:
    """Gradient descent at the server on the pseudo-gradient; it counts its steps."""

    def __init__(self, rate, spoil=None):
        self.rate, self.spoil, self.steps, self.seen = rate, spoil or {}, 0, None

    def move(self, model, mean, names, updates, facts):
        self.steps += 1
        self.seen = list(names), [update.site for update in updates], facts
        return {name: model[name] - self.rate * (model[name] - mean[name]) for name in names} | self.spoil

    def state(self):
        return {"steps": self.steps}

    def restore(self, state):
        self.steps = state.get("steps", 0)


def updates():
    def of(site, value, n_steps):
        tensors = {"w": torch.tensor([value, 0.0]), "bn.running_mean": torch.tensor([value])}
        return Update(site, 0, {**tensors, "bn.num_batches_tracked": torch.tensor(n_steps)}, n_steps, 1)

    return [of("b", 7.0, 1), of("a", -1.0, 3)]


def test_a_step_moves_what_sites_sent_and_buffers_follow_the_mean():
    step = Descent(0.5)
    outcome = WeightedMean(step=step).aggregate(MODEL, updates(), RoundFacts(4, 9, {"a": "supervised"}))
    mean = WeightedMean().aggregate(MODEL, updates()).tensors
    assert outcome.tensors["w"].tolist() == ((MODEL["w"] + mean["w"]) / 2).tolist() != mean["w"].tolist()
    assert outcome.tensors["bn.running_mean"].item() == mean["bn.running_mean"].item() == 1.5
    assert outcome.tensors["bn.num_batches_tracked"].item() == 6 and outcome.tensors["unsent"] is MODEL["unsent"]
    assert step.seen == (["w"], ["a", "b"], RoundFacts(4, 9, {"a": "supervised"}))


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        ({"w": torch.tensor([1.0])}, SharingError, "returned 'w'"),
        ({"w": torch.zeros(2, dtype=torch.int64)}, SharingError, "returned 'w'"),
        ({"unsent": torch.tensor([5.0])}, SharingError, "returned 'unsent'"),
        ({"w": torch.tensor([float("nan"), 0.0])}, RoundFailed, "'w' is not finite after the server's step"),
    ],
)
def test_what_a_step_may_not_return(spoil, error, message):
    with pytest.raises(error, match=message):
        WeightedMean(step=Descent(1.0, spoil)).aggregate(MODEL, updates())


def test_the_state_is_the_steps():
    rule, again = WeightedMean(step=Descent(1.0)), WeightedMean(step=Descent(1.0))
    assert isinstance(rule, ServerRule) and not isinstance(rule.step, ServerRule)
    rule.aggregate(MODEL, updates())
    again.restore(rule.state())
    assert again.step.steps == 1 and WeightedMean().state() == {}
    again.restore({})
    assert again.step.steps == 0
    with pytest.raises(StateError, match="holds step, which this rule has not"):
        WeightedMean().restore(rule.state())


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (WeightedMean(user_weights={"c": 1.0}), "unknown site 'c'; the sites are a, b"),
        (WeightedMean(clip_norm=3.0), "'clip_norm' 3 never acts: 'max_norm' refuses from 2 on"),
        (WeightedMean(middle=RobustAggregator("median")), "tensor 'w' is sent by 2 sites"),
    ],
)
def test_a_federation_that_the_mean_cannot_serve(rule, message):
    senders = ExpectedSenders({"a": "supervised", "b": "supervised"}, {"a": ["w"], "b": ["w"]}, 2.0)
    with pytest.raises(JobError, match=message):
        rule.check(senders)
    WeightedMean().check(senders)
