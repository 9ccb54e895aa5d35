"""MOON (Li, He, Song, CVPR 2021, arXiv 2103.16257), as a hospital would add it: one file."""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy

from fedmed.methods.algorithm import Algorithm
from fedmed.training.corrections.correction import Correction, check_kept


@dataclass(frozen=True)
class Moon(Algorithm):
    """Features are drawn to those of the received model and away from those of the site's own last one (Eq. 3)."""

    title, source = "MOON", "Li et al. 2021, arXiv 2103.16257"
    mu: float = 1.0
    temperature: float = 0.5

    def corrections(self, network):
        return [ModelContrast(network, self.mu, self.temperature)]


class ModelContrast(Correction):
    def __init__(self, network, mu, temperature=0.5):
        self.network, self.mu, self.temperature, self.previous = network, mu, temperature, {}

    def begin(self, start):
        check_kept(self.previous, self.network.state_dict(), "model of the last round")
        self.received = copy.deepcopy(self.network).eval().requires_grad_(False)
        self.last = copy.deepcopy(self.received)
        self.last.load_state_dict(self.previous or self.network.state_dict())

    def loss(self, images, features, batch):
        if not self.previous:  # in the first round there is nothing to leave behind
            return None
        near, far = (cosine_similarity(features.flatten(1), _features(m, images)) for m in (self.received, self.last))
        logits = torch.stack([near, far], dim=1) / self.temperature
        return self.mu * cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long))

    def end(self, parameters):
        self.previous = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}

    def state_dict(self):
        return {"previous": self.previous}

    def load_state_dict(self, state_dict):
        self.previous = dict(state_dict["previous"])


def _features(model: nn.Module, images):
    inputs = []
    *_, last = (module for module in model.modules() if [*module.parameters(recurse=False)])
    with last.register_forward_pre_hook(lambda _, given: inputs.append(given[0])), torch.no_grad():
        model(images)
    return inputs[0].flatten(1)
