"""A client's correction for tests: FedDyn's terms (Acar et al. 2021), and a push that the server sends."""

import torch

from fedmed.errors import StateError
from fedmed.training.corrections.correction import Correction


class DynamicTerm(Correction):
    """Adds ``μ (ω - ω_t) - g`` to the gradient of what is shared, with ``g ← g - μ (ω_end - ω_t)``."""

    takes = ("speed", "round", "push")

    def __init__(self, mu=0.1):
        self.mu, self.g, self.rounds = mu, {}, []

    def begin(self, start):
        self.start, self.steps = start, 0
        self.rounds.append([start.round, start.steps_before, start.steps_total])
        self.speed = float(start.values.get("speed", 0.0)) + float(sum(start.values.get("push", [0.0])))
        if start.values:
            assert start.values["round"] == start.round - 1, "the values of the round before"

    def _shared(self, parameters):
        return {name: p for name, p in parameters.items() if name in self.start.shared}

    def before_step(self, parameters):
        for name, parameter in self._shared(parameters).items():
            if parameter.grad is not None:
                parameter.grad.add_(parameter - self.start.received[name], alpha=self.mu)
                parameter.grad.sub_(self.g.get(name, torch.zeros_like(parameter))).mul_(1 + 1e-3 * self.speed)

    def after_step(self, parameters):
        self.steps += 1

    def end(self, parameters):
        for name, parameter in self._shared(parameters).items():
            step = self.mu * (parameter - self.start.received[name])
            self.g[name] = self.g.get(name, torch.zeros_like(parameter)) - step

    def state_dict(self):
        return {"g": self.g, "rounds": self.rounds}

    def load_state_dict(self, state):
        if set(state) != {"g", "rounds"}:
            raise StateError("not a state of DynamicTerm")
        self.g, self.rounds = dict(state["g"]), list(state["rounds"])
