"""SCAFFOLD, both parts together, with numbers worked out by hand: H_1 = (w - 1)²/2, H_2 = 3 (w + 1)²/2."""

import pytest
import torch

from fedmed.aggregation.rule import RoundFacts
from fedmed.aggregation.weighted_mean import UniformWeighting, WeightedMean
from fedmed.errors import StateError, UpdateRefused
from fedmed.messages.answers import Update
from fedmed.systems.algorithms.scaffold import CONTROL, DIFFERENCE, ControlledMean, ControlVariate

from .conftest import LOSSES, ROLES, TwoSites


class Federation(TwoSites):
    """Two sites that take two steps of rate 0.1."""

    def __init__(self):
        rule, terms = ControlledMean(WeightedMean(UniformWeighting())), {site: ControlVariate() for site in LOSSES}
        super().__init__(rule, terms, lambda curve: 0.1, steps=2)

    @property
    def of_site(self):
        return [term.state_dict()["own"]["w"].item() for term in self.terms.values()]


def test_two_rounds_by_hand():
    """Round 1: a goes 0, 0.1, 0.19 and b goes 0, -0.3, -0.51; round 2 begins at -0.16 with c = 0.8."""
    federation = Federation()
    assert federation.play() == pytest.approx(-0.16)
    assert federation.of_site == pytest.approx([-0.95, 2.55])
    assert federation.values.keys() == {"a", "b"}
    assert federation.values["a"][CONTROL]["w"].item() == pytest.approx(0.8)
    before = dict(zip("ab", federation.of_site, strict=True))
    updates = {site: federation.local(site) for site in "ab"}
    assert [u.tensors["w"].item() for u in updates.values()] == pytest.approx([-0.2721 + 0.16, -0.2909 + 0.16])
    for (site, update), of_site in zip(updates.items(), federation.of_site, strict=True):
        printed = before[site] - 0.8 - update.tensors["w"].item() / (2 * 0.1)  # Eq. 4, option II
        assert of_site == pytest.approx(printed)
        assert update.extras[DIFFERENCE]["w"].item() == pytest.approx(of_site - before[site])
    outcome = federation.rule.aggregate(federation.model, list(updates.values()), RoundFacts(1, 2, ROLES))
    assert outcome.tensors["w"].item() == pytest.approx(-0.2815)
    assert outcome.values["b"][CONTROL]["w"].item() == pytest.approx(0.6075)


def test_it_ends_at_the_joint_minimum_and_c_is_the_mean_of_all():
    federation = Federation()
    for sites in ("a", "ab", "b", "ab"):
        federation.play(sites=sites)
        shown = sum(term.state_dict()["own"].get("w", torch.zeros(1)).item() for term in federation.terms.values()) / 2
        assert federation.values["a"][CONTROL]["w"].item() == pytest.approx(shown, abs=1e-12)
    assert federation.play(60) == pytest.approx(-0.5, abs=1e-6)
    assert federation.values["a"][CONTROL]["w"].item() == pytest.approx(0.0, abs=1e-5)


def test_neither_order_nor_an_interruption_changes_a_bit():
    whole, turned, first, again = Federation(), Federation(), Federation(), Federation()
    expected = whole.play(4)
    assert turned.play(4, order=-1) == expected
    first.play(2)
    assert again.go_on_from(first).play(2) == expected


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({}, "no 'control_difference'.*'privacy.allowed_extras'"),
        ({DIFFERENCE: 3.0}, "no 'control_difference'"),
        ({DIFFERENCE: {"v": torch.zeros(1)}}, "'v'.*not of a tensor that it sends"),
        ({DIFFERENCE: {"w": torch.zeros(1, dtype=torch.int64)}}, "'w'.*not of a tensor"),
        ({DIFFERENCE: {"w": torch.zeros(2)}}, "'w'.*another shape"),
        ({DIFFERENCE: {"w": torch.tensor([torch.nan])}}, "'w'.*NaN"),
    ],
)
def test_what_the_server_refuses(extras, message):
    with pytest.raises(UpdateRefused, match=f"site 'a' refused.*{message}"):
        ControlledMean().check_update(Update("a", 0, {"w": torch.zeros(1)}, 1, 1, extras=extras))


def test_a_strange_state_is_refused():
    with pytest.raises(StateError, match="holds h, not SCAFFOLD's c"):
        ControlledMean().restore({"h": {}})
