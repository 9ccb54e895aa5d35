import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.tecno.engine import StageCrossEntropy


def by_hand(logits, labels, weight=None):
    """Slow and obvious: the weighted mean over frames of each stage, then the mean over stages."""
    weight = [1.0] * logits.shape[2] if weight is None else weight.tolist()
    stages = []
    for stage in logits:
        top, bottom = 0.0, 0.0
        for b in range(stage.shape[0]):
            for t in range(stage.shape[2]):
                y = int(labels[b, t])
                scores = stage[b, :, t].double()
                top += weight[y] * (scores.exp().sum().log() - scores[y]).item()
                bottom += weight[y]
        stages.append(top / bottom)
    return sum(stages) / len(stages)


def test_worked_out_by_hand():
    """Two stages, two frames: -log p of the true phase is log 2 and log 4, then log 2 and log 2; weights 1 and 3."""
    logits = torch.tensor([[[[0.0, math.log(3)], [0.0, 0.0]]], [[[0.0, 0.0], [0.0, 0.0]]]], dtype=torch.float64)
    labels = torch.tensor([[0, 1]])
    first = (math.log(2) + 3 * math.log(4)) / 4
    loss = StageCrossEntropy(torch.tensor([1.0, 3.0], dtype=torch.float64))(logits, labels)
    assert loss.item() == pytest.approx((first + math.log(2)) / 2, abs=1e-12)


@pytest.mark.parametrize(("stages", "batch", "classes", "frames"), [(1, 1, 2, 1), (2, 1, 6, 11), (3, 2, 4, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_against_a_slow_reference(stages, batch, classes, frames, weighted):
    generator = torch.Generator().manual_seed(stages)
    logits = torch.randn(stages, batch, classes, frames, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (batch, frames), generator=generator)
    weight = torch.rand(classes, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    assert StageCrossEntropy(weight)(logits, labels).item() == pytest.approx(by_hand(logits, labels, weight), abs=1e-9)


def test_weights_move_with_the_module_and_are_not_part_of_a_model():
    loss = StageCrossEntropy(torch.ones(3))
    assert not loss.state_dict() and loss.double().weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("logits", "labels"), [((2, 3, 7), (3, 7)), ((2, 1, 3, 7), (1, 6)), ((2, 1, 3, 7), (7,)), ((2, 1, 3, 7), (2, 7))]
)
def test_other_shapes_are_refused(logits, labels):
    with pytest.raises(FedMedError, match="use \\(S, B, C, T\\) and \\(B, T\\)"):
        StageCrossEntropy()(torch.zeros(logits), torch.zeros(labels, dtype=torch.long))
