"""A rule of the server for tests: it keeps a state, sends values down, and has another model for one role."""

import torch

from fedmed.aggregation.rule import Outcome
from fedmed.aggregation.weighted_mean import WeightedMean


class ServerMomentum:
    """``v ← β v + (mean - model)``, ``model ← model + v``; sites without labels start from labelled sites' mean."""

    def __init__(self, beta=0.5, apart=True):
        self.mean, self.beta, self.apart = WeightedMean(), beta, apart
        self.velocity, self.rounds = {}, 0

    def check(self, senders):
        self.mean.check(senders)

    def check_update(self, update):
        self.mean.check_update(update)

    def aggregate(self, model, updates, facts):
        mean = self.mean.aggregate(model, updates, facts)
        tensors = {name: self._moved(name, model[name], new) for name, new in mean.tensors.items()}
        self.rounds += 1
        speed = float(sum(v.abs().sum() for v in self.velocity.values()))
        values = {s: {"speed": speed, "round": facts.round, "push": torch.tensor([0.1, 0.2])} for s in facts.roles}
        return Outcome(
            tensors, mean.coefficients, self._for_roles(model, updates, facts), values, facts={"speed": speed}
        )

    def _moved(self, name, old, new):
        if not new.is_floating_point():
            return new
        velocity = self.velocity.setdefault(name, torch.zeros_like(old, dtype=torch.float64))
        velocity.mul_(self.beta).add_(new.double() - old.double())  # in place: a failed round must not be seen in it
        return (old.double() + velocity).to(old.dtype)

    def _for_roles(self, model, updates, facts):
        labelled = [update for update in updates if facts.roles[update.site] == "supervised"]
        if not self.apart or not labelled:
            return {}
        alone = WeightedMean().aggregate(model, labelled, facts).tensors
        return {"unsupervised": {name: new for name, new in alone.items() if new.is_floating_point()}}

    def state(self):
        return {"velocity": self.velocity, "rounds": self.rounds} if self.rounds else {}

    def restore(self, state):
        self.velocity, self.rounds = dict(state.get("velocity", {})), state.get("rounds", 0)
