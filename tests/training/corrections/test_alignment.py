"""Alignment with what a site had, and the trace of the Fisher information, with numbers worked out by hand."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedmed.errors import Aborted, FedMedError, JobError, StateError
from fedmed.systems.fedas.engine import LEAST, TRACE, PrototypeAlignment
from fedmed.training.corrected_steps import Corrections
from fedmed.training.corrections.correction import RoundStart
from fedmed.training.trainer import SupervisedEngine


class Network(nn.Module):
    """x -> head(body x); all float64."""

    def __init__(self, body=1.0):
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(2, 1, bias=False), nn.Dropout(0.5), nn.Linear(1, 2, bias=False)
        nn.init.constant_(self.body.weight, body)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[0.0], [1.0]]))
        self.double()

    def forward(self, x):
        return self.head(self.drop(self.body(x)))


BATCHES = [
    {"image": torch.tensor([[1.0, 0], [0, 2]]).double(), "label": torch.tensor([0, 1])},
    {"image": torch.tensor([[3.0, 0]]).double(), "label": torch.tensor([0])},
]
SHARED = ("body.weight",)


def start(network, **more):
    received = {name: network.state_dict()[name].clone() for name in SHARED}
    return RoundStart(received, frozenset(SHARED), parameters=dict(network.named_parameters()), **more)


def made(network, old=None, **more):
    correction = PrototypeAlignment(network, network.body, BATCHES, **more)
    if old is not None:
        correction.load_state_dict({"old": {"body.weight": torch.tensor([old]).double()}})
    return correction


def test_one_pass_towards_the_prototypes_of_the_old_encoder():
    """Old weights (2, 1): features 2, 2 and 6, so m_0 = 4 and m_1 = 2.

    From (1, 1), where they are 1, 2 and 3, the first batch gives the gradient (2 (1 - 4) · 1, 2 (2 - 2) · 2) = (-6, 0),
    so 1.6 with a rate of 0.1. There the third feature is 4.8, and the second batch gives (2 (4.8 - 4) · 3, 0) =
    (4.8, 0): 1.12.
    """
    network = Network()
    made(network, old=[2.0, 1.0], rate=0.1).begin(start(network))
    assert network.body.weight[0].tolist() == pytest.approx([1.12, 1.0])
    assert network.head.weight.flatten().tolist() == [0, 1], "no layer behind the features moves"
    assert network.body.weight.grad is None and network.training


def test_the_trace_of_the_fisher_information():
    """Logits (0, z) with z = body x, p = σ(z), y the label.

    The gradient of the body is (p - y) x, as the head's first weight is 0 and its second is 1; that of the head is
    (y - p, p - y) z.
    """
    network = Network()
    correction = made(network)
    correction.begin(start(network))
    with torch.no_grad():  # as corrections are called
        correction.end(dict(network.named_parameters()))
    total = 0.0
    for batch in BATCHES:
        body, head = torch.zeros(2).double(), 0.0
        for x, y in zip(batch["image"], batch["label"].tolist(), strict=True):
            z = float(x.sum())
            slope = (1 / (1 + math.exp(-z)) - y) / len(batch["image"])
            body, head = body + slope * x, head + slope * z
        total += float(body.square().sum()) + 2 * head**2
    assert correction.extras() == {TRACE: pytest.approx(total, rel=1e-12)}
    assert network.training and all(parameter.grad is None for parameter in network.parameters())


def test_a_model_that_fits_everything_still_counts():
    network = Network(body=0.0)
    nn.init.zeros_(network.head.weight)
    correction = PrototypeAlignment(network, network.body, [{**BATCHES[0], "image": torch.zeros(2, 2).double()}])
    correction.begin(start(network))
    correction.end(dict(network.named_parameters()))
    assert correction.extras() == {TRACE: LEAST} and type(correction.extras()[TRACE]) is float


def test_the_first_round_and_a_rate_of_zero_align_nothing():
    for correct in (made(network := Network()), made(network, old=[2.0, 1.0], rate=0.0)):
        correct.begin(start(network))
        assert network.body.weight[0].tolist() == [1, 1] and correct.extras() == {}


def test_what_is_kept_is_what_the_site_shares_after_its_training():
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    engine = SupervisedEngine("cpu", 1, BATCHES, network, optimizer, F.cross_entropy)
    item = made(network)
    corrections = Corrections([item])
    corrections.attach(engine, SHARED, SHARED)
    engine.run()
    (kept,) = corrections.kept_with({})["corrections"]
    assert kept["state"]["old"].keys() == set(SHARED)
    assert torch.equal(kept["state"]["old"]["body.weight"], network.body.weight)
    again = made(Network())
    again.load_state_dict(copy.deepcopy(kept["state"]))
    assert torch.equal(again.state_dict()["old"]["body.weight"], network.body.weight)
    assert item.extras()[TRACE] > 0


def test_it_can_be_stopped_before_each_batch():
    seen = []

    def stop():
        seen.append(1)
        if len(seen) == 4:
            raise Aborted("stopped")

    network = Network()
    with pytest.raises(Aborted):
        made(network, old=[2.0, 1.0]).begin(start(network, before_batch=stop))
    assert len(seen) == 4, "two of the old encoder, and the second of the alignment"


def test_masks_and_maps():
    """Logits and features are maps of half the size of the masks."""
    network = nn.Sequential(nn.Conv2d(3, 4, 2, stride=2), nn.ReLU(), nn.Conv2d(4, 3, 1))
    batches = [{"image": torch.rand(2, 3, 8, 8), "label": torch.randint(0, 3, (2, 1, 8, 8))} for _ in range(2)]
    shared = {name: tensor.clone() for name, tensor in network.state_dict().items() if not name.startswith("2.")}
    correction = PrototypeAlignment(network, network[:2], batches, rate=0.1)
    correction.load_state_dict({"old": {name: tensor + 0.1 for name, tensor in shared.items()}})
    correction.begin(RoundStart(shared, frozenset(shared), parameters=dict(network.named_parameters())))
    assert not torch.equal(network[0].weight, shared["0.weight"])
    correction.end(dict(network.named_parameters()))
    assert correction.extras()[TRACE] > 0


def test_what_cannot_be_meant():
    with pytest.raises(JobError, match="'rate' is -1; give a number of at least 0"):
        made(Network(), rate=-1)
    network = Network()
    with pytest.raises(StateError, match="kept layers of its last round are of another network: 'body.weight'"):
        made(network, old=[1.0, 2.0, 3.0]).begin(start(network))
    wrong = PrototypeAlignment(network, network.body, [{**BATCHES[0], "label": torch.ones(2, 3)}])
    wrong.load_state_dict({"old": {"body.weight": torch.ones(1, 2).double()}})
    with pytest.raises(FedMedError, match="a prototype needs one class, a whole number, for each image or pixel"):
        wrong.begin(start(network))
