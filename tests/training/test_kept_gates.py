import numpy as np
import pytest
import torch
from ignite.engine import Engine
from torch import nn

from fedmed.errors import FedMedError
from fedmed.training.kept_features import KeptGates


class Gated(nn.Module):
    """A layer whose output are the gates."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.unused, self.wide = nn.Sigmoid(), nn.Identity(), nn.Identity()

    def forward(self, x):
        return self.wide(x[:, :, None]) * self.gate(x)[:, :, None]


def run(kept, batches):
    network = Gated()
    engine = Engine(lambda _, batch: network(batch))
    engine.network = network
    kept.attach(engine)
    engine.run(batches)
    return network


def test_means_are_over_frames_whatever_the_batches():
    frames = torch.tensor([[0.0, 1.0], [2.0, -1.0], [1.0, 0.5]])
    gates = torch.sigmoid(frames.double())
    for sizes in ([3], [2, 1], [1, 1, 1]):
        kept = KeptGates("gate")
        network = run(kept, list(frames.split(sizes)))
        found = kept.content()
        assert np.allclose(found["mean"], gates.mean(0)) and int(found["frames"]) == 3
        assert np.allclose(found["spread"], gates.std(0, correction=0), atol=1e-6)
        assert not network.gate._forward_hooks, "nothing stays on the network"


def test_a_second_run_forgets_the_first():
    kept = KeptGates("gate")
    run(kept, [torch.full((2, 2), 9.0)])
    run(kept, [torch.zeros(1, 2)])
    assert kept.content()["mean"].tolist() == [0.5, 0.5] and kept.content()["frames"] == 1


def test_a_wrong_layer_is_one_clear_error():
    with pytest.raises(FedMedError, match="Gated has no layer 'selection'"):
        run(KeptGates("selection"), [torch.zeros(1, 2)])
    unused = KeptGates("unused")
    run(unused, [torch.zeros(1, 2)])
    with pytest.raises(FedMedError, match="the network has not used its layer 'unused'"):
        unused.content()
    with pytest.raises(FedMedError, match=r"layer 'wide' gives \(1, 2, 1\)"):
        run(KeptGates("wide"), [torch.zeros(1, 2)])
