import pytest

from fedmed.errors import StateError
from fedmed.systems.agreement.server import ValidationGate


def of(*scores):
    """Scores (with, without) of sites 0, 1, …"""
    return {f"site_{number}": score for number, score in enumerate(scores)}


def test_the_weight_is_halved_while_harm_is_done_and_raised_slowly():
    """Differences -0.1, -0.15, none, 0.1 and 0.1; seen: -0.1, -0.125, the same, -0.0125, 0.04375."""
    judge = ValidationGate()
    rounds = ([(0.5, 0.6)], [(0.5, 0.65)], [], [(0.7, 0.6)], [(0.7, 0.6)])
    result = [judge.judged(of(*scores)) for scores in rounds]
    assert result == pytest.approx([0.5, 0.25, 0.25, 0.125, 0.225])
    assert judge.gains["site_0"] == pytest.approx(0.04375)


def test_the_mean_over_sites_decides():
    assert ValidationGate().judged(of((0.60, 0.61), (0.5, 0.52), (0.6, 0.59))) == 0.5
    assert ValidationGate().judged(of((0.60, 0.61), (0.5, 0.51), (0.6, 0.57))) == 1.0
    assert ValidationGate().judged(of((0.6, 0.6))) == 1.0


def test_but_no_site_may_pay_for_the_others():
    assert ValidationGate().judged(of((0.5, 0.521), (0.9, 0.5))) == 0.5
    assert ValidationGate().judged(of((0.5, 0.519), (0.9, 0.5))) == 1.0


def test_one_bad_round_after_good_ones_is_chance():
    judge = ValidationGate()
    assert [judge.judged(of(one)) for one in [(0.65, 0.6), (0.58, 0.6), (0.6, 0.6), (0.5, 0.6)]] == [1.0, 1.0, 1.0, 0.5]


def test_a_site_that_is_away_neither_judges_nor_is_forgotten():
    judge = ValidationGate()
    judge.judged({"a": (0.5, 0.6), "b": (0.9, 0.5)})
    assert judge.judged({"b": (0.6, 0.6)}) == 0.6
    assert judge.gains["a"] == pytest.approx(-0.1)


def test_it_never_exceeds_1_and_never_reaches_0():
    judge = ValidationGate()
    for _ in range(200):
        judge.judged(of((0.0, 1.0)))
    assert 0 < judge.weight < 1e-12
    for _ in range(20):
        judge.judged(of((1.0, 0.0)))
    assert judge.weight == 1.0


def test_state():
    judge, again = ValidationGate(), ValidationGate()
    judge.judged(of((0.1, 0.9)))
    again.restore(judge.state())
    assert again.judged({}) == 0.5 and again.gains == judge.gains
    again.restore({})
    assert again.weight == 1.0
    for weight in (2.0, -0.1, "1", None, float("nan")):
        with pytest.raises(StateError, match="validation-gated weight is"):
            again.restore({"weight": weight})
    for gains in ({"a": 2.0}, {"a": "0"}, [0.1]):
        with pytest.raises(StateError, match="kept gains of the labelled sites are"):
            again.restore({"gains": gains})
