"""Rules and updates of a few sites, and what several tests look at."""

import copy

import torch
from torch import nn

from fedmed.aggregation.rule import RoundFacts
from fedmed.jobs.rule_spec import load_rule, rule_spec
from fedmed.messages.answers import Update
from fedmed.methods.method import MEAN
from fedmed.training.corrections.correction import RoundStart

LOSSES = {"a": (1.0, 1.0), "b": (3.0, -1.0)}  # curvature and place of the minimum; both together: -0.5
ROLES = {"a": "supervised", "b": "supervised", "test": "evaluate"}


def mean_of(**flat):
    """Return the rule that these flat arguments of a job ask for."""
    return load_rule(rule_spec({"path": MEAN, "args": flat}))


def update(site, n_steps=1, n_samples=10, **tensors):
    """Return a site's update; ``__`` in a name stands for a dot."""
    named = {name.replace("__", "."): value for name, value in tensors.items()}
    return Update(site, 0, named, n_steps, n_samples)


def on_threads(compute, counts=(1, 2, 3)):
    """Return what is computed on so many threads."""
    before, results = torch.get_num_threads(), []
    try:
        for count in counts:
            torch.set_num_threads(count)
            results.append(compute())
    finally:
        torch.set_num_threads(before)
    return results


class TwoSites:
    """A model of one parameter, w, at two sites that take steps towards the minima of LOSSES.

    Args:
        rule: of the server.
        terms: site -> correction of its gradients.
        rate: of a site's steps, by its curvature.
        steps: of a round.
    """

    def __init__(self, rule, terms, rate, steps, start=0.0):
        self.rule, self.terms, self.rate, self.steps = rule, terms, rate, steps
        self.model, self.values, self.round = {"w": torch.tensor([start], dtype=torch.float64)}, {}, 0

    def local(self, site):
        curve, place = LOSSES[site]
        weight = nn.Parameter(self.model["w"].clone())
        term, named = self.terms[site], {"w": weight}
        term.begin(RoundStart(dict(self.model), frozenset({"w"}), self.values.get(site, {}), parameters=named))
        for _ in range(self.steps):
            weight.grad = curve * (weight.detach() - place)
            with torch.no_grad():
                term.before_step(named)
                weight -= self.rate(curve) * weight.grad
        term.end(named)
        difference = {"w": weight.detach() - self.model["w"]}
        return Update(site, self.round, difference, self.steps, 1, extras=term.extras())

    def play(self, rounds=1, sites="ab", order=1):
        for _ in range(rounds):
            updates = [self.local(site) for site in sites][::order]
            for sent in updates:
                self.rule.check_update(sent)
            outcome = self.rule.aggregate(self.model, updates, RoundFacts(self.round, 99, ROLES))
            self.model, self.values, self.round = outcome.tensors, outcome.values, self.round + 1
        return self.model["w"].item()

    def go_on_from(self, other):
        """Take the states of another federation, as after an interruption."""
        self.model, self.round, self.values = other.model, other.round, copy.deepcopy(other.values)
        self.rule.restore(copy.deepcopy(other.rule.state()))
        for site, term in self.terms.items():
            term.load_state_dict(copy.deepcopy(other.terms[site].state_dict()))
        return self
