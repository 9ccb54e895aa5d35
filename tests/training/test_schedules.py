import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.training.trainer import one_cycle, scaled_learning_rate, sigmoid_ramp_up


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def rates(optimizer=None, steps=100, before=0, **options):
    """Return the learning rate of every step after those before."""
    optimizer = optimizer or sgd()
    schedule = one_cycle(optimizer, 1e-3, steps, before, **options)
    result = []
    for _ in range(before, steps):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return result


def test_rates_of_one_cycle():
    result = rates()
    expected = {0: 4e-5, 29: 1e-3, 50: 7.9389345e-4, 64: 5.00002e-4, 99: 4e-9}
    for step, rate in expected.items():
        assert result[step] == pytest.approx(rate, rel=1e-6)
    assert max(result) == result[29]


def test_a_cycle_may_rise_sooner_and_end_higher():
    result = rates(final_div_factor=0.4, pct_start=0.1)
    assert result[0] == pytest.approx(4e-5) and result.index(max(result)) == 9
    assert max(result) == pytest.approx(1e-3) and result[99] == pytest.approx(1e-4)


@pytest.mark.parametrize("before", [0, 30, 60, 61, 90])
def test_after_a_shorter_cycle_its_last_rate_stays(before):
    result = rates(before=before, final_div_factor=0.4, pct_start=0.1, cycle_share=0.6)
    assert result[max(0, 59 - before) :] == pytest.approx([1e-4] * len(result[max(0, 59 - before) :]))
    if not before:
        assert result.index(max(result)) == 5 and max(result) == pytest.approx(1e-3)


@pytest.mark.parametrize("share", [0, -0.5, 1.2])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(FedMedError, match="cycle_share is .*above 0 and at most 1"):
        one_cycle(sgd(), 1e-3, 100, cycle_share=share)


def test_past_its_end_is_one_clear_error():
    optimizer = sgd()
    schedule = one_cycle(optimizer, 1e-3, 10, 8)
    for _ in range(2):
        optimizer.step()
        schedule.step()
    with pytest.raises(FedMedError, match="ends after 10 steps, and training has come to step 11; give it the steps"):
        schedule.step()
    with pytest.raises(FedMedError, match="ends after 10 steps, and training has come to step 12"):
        one_cycle(optimizer, 1e-3, 10, 12)


@pytest.mark.parametrize("before", [1, 29, 30, 64, 98])
def test_one_cycle_goes_on_with_a_new_optimizer(before):
    assert rates(before=before) == pytest.approx(rates()[before:], rel=1e-12)


def test_gradient_descent_in_rounds_ends_where_one_run_does():
    """Of plain gradient descent nothing but the weights and the rate outlives a step."""
    ends = []
    for rounds in (1, 4):
        weight, length = torch.nn.Parameter(torch.tensor([3.0, -2.0], dtype=torch.float64)), 40 // rounds
        for number in range(rounds):  # as a site does, also one that was started again: with a new optimizer
            optimizer = torch.optim.SGD([weight], lr=1.0)
            schedule = one_cycle(optimizer, 0.1, 40, number * length)
            for _ in range(length):
                optimizer.zero_grad()
                (weight.square() * torch.tensor([1.0, 3.0])).sum().backward()
                optimizer.step()
                schedule.step()
        ends.append(weight.detach())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=0)


def test_momentum_is_left_alone():
    plain, adam = sgd(), torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0, betas=(0.8, 0.99))
    for optimizer in (plain, adam):
        rates(optimizer, 10)
    assert plain.param_groups[0]["momentum"] == 0 and adam.param_groups[0]["betas"] == (0.8, 0.99)


def test_ramp_up_of_laine_and_aila():
    factors = [sigmoid_ramp_up(step, 10) for step in range(13)]
    assert factors[0] == pytest.approx(0.006737947) and factors[5] == pytest.approx(0.286504797)
    assert factors[9] == pytest.approx(0.951229425) and factors[10:] == [1.0] * 3
    assert factors == sorted(factors)
    assert sigmoid_ramp_up(0, 0) == 1.0


def test_learning_rates_are_scaled_for_a_while_also_when_it_fails():
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.3}])
    with pytest.raises(ZeroDivisionError), scaled_learning_rate(optimizer, 0.5):
        assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.15]
        raise ZeroDivisionError
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.3]
