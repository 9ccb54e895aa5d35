import pytest
import torch
from torch import nn

from fedmed.systems.fedmoco.keys import key_encoder, momentum_update


def test_one_step_of_the_average():
    query, key = nn.Linear(1, 1, bias=False).double(), nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(query.weight, 2.0)
    nn.init.constant_(key.weight, 1.0)
    momentum_update(key, query, 0.999)
    assert key.weight.item() == pytest.approx(1.001, abs=1e-12)
    assert query.weight.item() == 2.0


def test_the_key_encoder_is_a_copy_without_gradient_in_train_mode():
    query = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    key = key_encoder(query)
    assert all(torch.equal(a, b) for a, b in zip(query.parameters(), key.parameters(), strict=True))
    assert all(a is not b for a, b in zip(query.parameters(), key.parameters(), strict=True))
    assert not any(p.requires_grad for p in key.parameters()) and all(p.requires_grad for p in query.parameters())
    assert key.training and not query.training


def test_buffers_are_left_alone():
    query = nn.BatchNorm1d(3)
    key = key_encoder(query)
    query(torch.rand(8, 3) + 5)
    momentum_update(key, query, 0.5)
    assert torch.equal(key.running_mean, torch.zeros(3)) and not torch.equal(query.running_mean, torch.zeros(3))
