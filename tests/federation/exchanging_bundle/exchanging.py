"""A method that exchanges values, as small as can be: its sites learn vectors, and push away from the others' means."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from ignite.engine import Engine

from fedmed.methods.declarations import BEFORE_TRAINING, FROM_A_ROUND, ONCE, WITH_UPDATE, AuxiliaryValue, Role
from fedmed.methods.method import MEAN, Method
from fedmed.systems.fedmoco.method import SELF_ADAPTIVE
from fedmed.training.trainer import StatefulTrainer

received = []  # (site, round, others) of every run in this process


@dataclass(frozen=True)
class Exchanging(Method):
    """Sites exchange ``names`` from a round on, or in that round alone, and count by what they report."""

    from_round: int | None = 2
    names: tuple = ("mu", "n")
    once: bool = False

    def roles(self):
        return {"unsupervised": Role("trains without labels", "fedmed.flare.executors.ContrastiveExecutor")}

    def values(self):
        when = {"when": ONCE if self.once else FROM_A_ROUND, "round": self.from_round}
        names = () if self.from_round is None else self.names
        early = [AuxiliaryValue(n, "numbers", BEFORE_TRAINING, "to the others", "Nothing.", **when) for n in names]
        return (*early, AuxiliaryValue("rsa", "one number", WITH_UPDATE, "to the server", "How much it moved."))

    def rule(self):
        return {"path": MEAN, "args": {"weighting": {"by": SELF_ADAPTIVE, "name": "rsa", "form": "gap"}}}


def load(datalist, key):
    return json.loads(Path(datalist).read_text())[key]


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.register_buffer("queue", torch.zeros(1))


class Trainer(StatefulTrainer):
    def __init__(self, network, optimizer, data, batch_size, max_epochs, epoch_length):
        Engine.__init__(self, lambda engine, batch: self.iterate(batch))
        self.network, self.optimizer, self.amp, self.scaler = network, optimizer, False, None
        self.data, self.size, self.pushed = torch.tensor(data), batch_size, None
        self.epochs, self.length = max_epochs, epoch_length
        self.before = self.seen().clone()

    def seen(self):
        with torch.no_grad():
            return self.network(self.data)

    def run(self):
        Engine.run(self, self.data[torch.arange(self.length * self.size) % len(self.data)].split(self.size))

    def iterate(self, batch):
        self.optimizer.zero_grad()
        loss = self.network(batch + 0.01 * torch.rand_like(batch)).square().mean()
        for other in self.pushed or ():
            loss = loss + (self.network.bias * other["mu"]).sum()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def receive(self, extras):
        self.pushed = extras["others"]
        received.append(extras["others"])

    def extras(self):
        return {"rsa": 1 - float((self.seen() - self.before).abs().mean().clamp(0, 1))}


class Provider:
    def __init__(self, network, data, min_images=2):
        self.network, self.data, self.min_images = network, torch.tensor(data), min_images

    def __call__(self, before_batch=None):
        before_batch()
        if len(self.data) < self.min_images:
            return {}
        with torch.no_grad():
            return {"mu": self.network(self.data).mean(0), "n": len(self.data)}
