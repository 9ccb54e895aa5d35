import pytest

from fedmed.aggregation.do_no_harm import DoNoHarm
from fedmed.errors import StateError


def test_the_weight_is_halved_while_harm_is_done_and_raised_slowly():
    judge = DoNoHarm()
    rounds = ([(0.5, 0.6)], [(0.5, 0.7), (0.6, 0.5)], [], [(0.6, 0.6)], [(0.7, 0.6)])
    found = [judge.judged(scores) for scores in rounds]
    assert found == pytest.approx([0.5, 0.25, 0.25, 0.35, 0.45])


def test_the_site_that_loses_most_decides():
    assert DoNoHarm().judged([(0.5, 0.6), (0.7, 0.55)]) == 0.5
    assert DoNoHarm().judged([(0.595, 0.6), (0.7, 0.55)]) == 1.0


def test_less_than_a_validation_list_can_tell_is_no_harm():
    assert DoNoHarm().judged([(0.5, 0.509)]) == 1.0
    assert DoNoHarm().judged([(0.5, 0.511)]) == 0.5


def test_it_never_exceeds_1_and_never_reaches_0():
    judge = DoNoHarm()
    for _ in range(200):
        judge.judged([(0.0, 1.0)])
    assert 0 < judge.weight < 1e-12
    for _ in range(20):
        judge.judged([(1.0, 0.0)])
    assert judge.weight == 1.0


def test_state():
    judge, again = DoNoHarm(), DoNoHarm()
    judge.judged([(0.1, 0.9)])
    again.restore(judge.state())
    assert again.judged([]) == 0.5
    again.restore({})
    assert again.weight == 1.0
    for weight in (2.0, -0.1, "1", None, float("nan")):
        with pytest.raises(StateError, match="do-no-harm weight is"):
            again.restore({"weight": weight})
