import pytest

from fedmed.errors import FedMedError
from fedmed.systems.fedmoco.options import ContrastOptions


def test_rates_at_fedmocos_milestones():
    options = ContrastOptions(milestones=[120, 160])
    result = [options.rate_factor(epoch) for epoch in (0, 119, 120, 159, 160, 399)]
    assert result == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    assert ContrastOptions().rate_factor(500) == 1 and options.milestones == (120, 160)


@pytest.mark.parametrize(("sites", "count"), [(0, 51), (1, 51), (2, 25), (5, 10)])
def test_draws_are_shared_by_the_other_sites(sites, count):
    """floor(η N / (K - 1)) with η = 0.05 and N = 1024 (Dong and Voiculescu 2021, Eq. 5)."""
    assert ContrastOptions().draws_of_each(sites) == count


def test_rounding_does_not_lose_a_draw():
    assert ContrastOptions(queue_size=100, synthetic_fraction=0.29).draws_of_each(1) == 29


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue_size", 0),
        ("momentum", 1.0),
        ("temperature", 0.0),
        ("synthetic_fraction", -0.1),
        ("box_cox", 0.0),
        ("key_policy", "aggregate"),
        ("own_keys", True),
        ("max_grad_norm", 0.0),
        ("milestones", (-1,)),
        ("milestone_factor", 0.0),
    ],
)
def test_numbers_out_of_range_are_refused(option, value):
    with pytest.raises(FedMedError, match=f"MomentumContrastEngine: {option} is .*; use "):
        ContrastOptions(**{option: value})
