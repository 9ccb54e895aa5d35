"""FedDyn, both parts together, with numbers worked out by hand: H_1 = (w - 1)²/2, H_2 = 3 (w + 1)²/2."""

import copy

import pytest
import torch

from fedmed.aggregation.server_optimizers import ServerAdamW, ServerSGD
from fedmed.aggregation.weighted_mean import UniformWeighting, WeightedMean
from fedmed.errors import JobError, StateError
from fedmed.systems.algorithms.feddyn import DynamicStep, DynamicTerm
from fedmed.training.corrections.correction import Correction

from .conftest import LOSSES, TwoSites


class Federation(TwoSites):
    """Two sites that minimise exactly (steps None), or take so many steps."""

    def __init__(self, start=0.0, alpha=1.0, steps=None, rate=0.01, terms=None, step="dynamic", **settings):
        terms = terms or {site: DynamicTerm(alpha) for site in LOSSES}
        self.step = DynamicStep(alpha, **settings) if step == "dynamic" else step
        newton = lambda curve: 1 / (curve + alpha)  # noqa: E731 # exact for a parabola
        rule = WeightedMean(UniformWeighting(), step=self.step)
        super().__init__(rule, terms, (lambda curve: rate) if steps else newton, steps or 1, start)

    @property
    def g(self):
        return [term.state_dict()["g"].get("w", torch.zeros(1)).item() for term in self.terms.values()]


def test_exact_minima_meet_in_that_of_both_losses():
    federation = Federation()
    for g, h, weight in [
        ([-0.5, 0.75], 0.125, -0.25),
        ([-0.875, 1.125], 0.125, -0.375),
        ([-1.125, 1.3125], 0.09375, -0.4375),
    ]:
        assert federation.play() == weight and federation.g == g
        assert federation.step.h["w"].item() == h == sum(federation.g) / 2
        assert federation.step.h["w"].dtype == torch.float64
    assert federation.play(7) == pytest.approx(-0.49951172, abs=1e-8)
    assert federation.play(10) == pytest.approx(-0.49999952, abs=1e-8)


def test_with_delayed_h_they_meet_too_and_overshoot():
    federation = Federation(delayed_h=True)
    assert [federation.play() for _ in range(3)] == [-0.125, -0.328125, pytest.approx(-0.501953, abs=1e-6)]
    assert federation.play(7) == pytest.approx(-0.503856, abs=1e-6)


def test_exact_minima_averaged_stay_where_they_were():
    plain = Federation(terms={site: Correction() for site in LOSSES}, step=None, alpha=0.0)
    assert plain.play(20) == 0.0


@pytest.mark.parametrize(
    ("dynamic", "adam", "distance"),
    [(False, False, 0.0339), (True, False, 0.0281), (False, True, 0.0338), (True, True, 2.75)],
)
def test_it_winds_up_with_adamw_at_the_server_alone(dynamic, adam, distance):
    """10 steps of rate 0.01, α 0.01, 200 rounds from 2."""
    optimizer = ServerAdamW(0.05, decay=0.0) if adam else None
    terms = None if dynamic else {site: Correction() for site in LOSSES}
    federation = Federation(2.0, 0.01, 10, terms=terms, step="dynamic" if dynamic else optimizer,
                            **({"then": optimizer} if dynamic else {}))  # fmt: skip
    result = abs(federation.play(200) + 0.5)
    assert result == pytest.approx(distance, abs=1e-4 if distance < 1 else 5e-2)


def test_gradient_descent_of_rate_1_after_it_changes_nothing():
    whole, plain = Federation(then=ServerSGD()), Federation()
    assert whole.play(3) == plain.play(3) == -0.4375


def test_the_optimizer_after_it_goes_on_from_its_state():
    whole, first, again = (Federation(2.0, 0.01, 10, then=ServerAdamW(0.05)) for _ in range(3))
    expected = whole.play(4)
    first.play(2)
    assert again.go_on_from(first).play(2) == expected


def test_a_site_that_misses_a_round():
    """h is divided by all sites that train, and stays the mean of all g: a's gets α·0.5 in round 1."""
    federation = Federation()
    federation.play(sites="a")
    assert federation.g == [-0.5, 0.0] and federation.step.h["w"].item() == -0.25
    assert federation.model["w"].item() == 0.5 + 0.25
    for sites in ("ab", "b", "a", "ab"):
        federation.play(sites=sites)
        assert federation.step.h["w"].item() == pytest.approx(sum(federation.g) / 2, abs=1e-15)
    assert federation.play(40) == pytest.approx(-0.5, abs=1e-6)


def test_neither_order_nor_an_interruption_changes_a_bit():
    whole, turned, first, again = (Federation(alpha=0.3) for _ in range(4))
    expected = whole.play(5)
    assert turned.play(5, order=-1) == expected
    first.play(2)
    assert again.go_on_from(first).play(3) == expected


def test_a_failed_round_can_be_undone_and_a_strange_state_is_refused():
    federation = Federation()
    federation.play()
    before = copy.deepcopy(federation.rule.state())
    federation.play()
    federation.rule.restore(before)
    assert federation.step.h["w"].item() == 0.125
    with pytest.raises(StateError, match="the server's step holds moments, not FedDyn's h"):
        federation.rule.restore({"step": {"moments": {}}})
    federation.rule.restore({})
    assert federation.step.h == {} and federation.rule.state() == {}


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), True, "1"])
def test_alpha_must_be_above_0(alpha):
    for kind in (DynamicStep, DynamicTerm):
        with pytest.raises(JobError, match="'alpha' is"):
            kind(alpha)
