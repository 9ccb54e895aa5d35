import pytest

from fedmed.errors import DataError
from fedmed.reports.statistics import mann_whitney_less

X = [0.2, 0.4, 0.5, 0.6]


def test_chk_s12_without_ties_is_exact():
    result = mann_whitney_less(X, [0.55, 0.7, 0.8, 0.9])
    assert (result.u, result.method) == (1, "exact")
    assert result.p == pytest.approx(2 / 70, abs=1e-6)


def test_chk_s12_with_ties_is_asymptotic():
    result = mann_whitney_less(X, [0.5, 0.7, 0.8, 0.9])
    assert (result.u, result.method) == (1.5, "asymptotic")
    assert result.p == pytest.approx(0.0407146, abs=1e-6)


def test_large_samples_are_asymptotic():
    assert mann_whitney_less(range(9), [x + 0.5 for x in range(9)]).method == "asymptotic"


def test_chk_s12_asymptotic_without_ties(monkeypatch):
    monkeypatch.setattr("fedmed.reports.statistics.EXACT_UP_TO", 3)
    assert mann_whitney_less(X, [0.55, 0.7, 0.8, 0.9]).p == pytest.approx(0.0303010, abs=1e-6)


@pytest.mark.parametrize("x", [[], [float("nan")]])
def test_bad_samples(x):
    with pytest.raises(DataError, match="Mann-Whitney"):
        mann_whitney_less(x, [1.0])
