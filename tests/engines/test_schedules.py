import pytest
import torch

from fedmed.engines.schedules import one_cycle


def rates(optimizer, steps=100):
    """The learning rate of every step."""
    schedule = one_cycle(optimizer, 1e-3, steps)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_chk_s13():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    found = rates(optimizer)
    expected = {0: 4e-5, 29: 1e-3, 50: 7.9389345e-4, 64: 5.00002e-4, 99: 4e-9}
    for step, rate in expected.items():
        assert found[step] == pytest.approx(rate, rel=1e-6)
    assert max(found) == found[29]


def test_momentum_is_left_alone():
    weight = torch.nn.Parameter(torch.zeros(1))
    sgd, adam = torch.optim.SGD([weight], lr=1.0), torch.optim.AdamW([weight], lr=1.0, betas=(0.8, 0.99))
    rates(sgd, 10)
    rates(adam, 10)
    assert sgd.param_groups[0]["momentum"] == 0
    assert adam.param_groups[0]["betas"] == (0.8, 0.99)
