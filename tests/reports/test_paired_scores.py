"""Two models on the same cases: which cases are paired, and what the interval of the difference is."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

from fedmed.reports.paired_scores import interval, paired_scores, patients_to_tell


def table(scores, patients=None, **columns):
    """Cases as ``cases.csv`` holds them: case -> score."""
    names = list(scores)
    texts = {"case": names, "dice": [str(value) for value in scores.values()], "patient": patients or names}
    return pd.DataFrame({**texts, **columns})


def mean(cases, weights):
    return weights @ cases["dice"].to_numpy(float) / weights.sum(axis=1)


def compare(ours, theirs):
    return paired_scores(ours, theirs, ["dice"], mean)


def test_cases_are_paired_by_name_and_only_those_that_both_scored_count():
    ours = table({"a": 0.9, "b": 0.7, "c": 0.1, "e": "nan"})
    theirs = table({"b": 0.5, "a": 0.6, "d": 1.0, "e": 0.5})
    found = compare(ours, theirs)
    assert (found.n_cases, found.n_patients) == (2, 2)
    assert found.ours == pytest.approx(0.8) and found.theirs == pytest.approx(0.55)
    assert found.low is None and found.high is None  # of two patients there is no interval
    assert compare(ours, table({"x": 1.0})) is None
    assert compare(ours, pd.DataFrame()) is None


def test_files_of_one_name_are_cases_of_their_own():
    ours, theirs = (pd.DataFrame({"case": ["ct", "ct"], "dice": texts, "patient": ["p", "q"]}) for texts in (
        ["0.4", "0.8"], ["0.3", "0.5"]))  # fmt: skip
    found = compare(ours, theirs)
    assert (found.n_cases, found.ours, found.theirs) == (2, pytest.approx(0.6), pytest.approx(0.4))


def test_a_case_whose_label_has_changed_is_not_compared():
    ours = table({"a": 0.9, "b": 0.7}, label=["normal", "ill"])
    theirs = table({"a": 0.6, "b": 0.5}, label=["normal", "normal"])
    assert compare(ours, theirs).n_cases == 1


def test_how_many_patients_would_tell():
    """Differences with a standard deviation of 10, of which 5 is to be shown: 31.4 in any table of paired samples."""
    half = t.ppf(0.975, 8) * 10 / 3
    assert patients_to_tell(1 - half, 1 + half, 9, 5) == pytest.approx(31.4, abs=0.05)


def test_the_interval_of_a_constant_difference_is_that_difference():
    names = {f"case_{n}": n / 10 for n in range(6)}
    found = compare(table({name: value + 0.25 for name, value in names.items()}), table(names))
    assert (found.low, found.high) == (pytest.approx(0.25), pytest.approx(0.25))


def test_of_four_patients_the_interval_is_the_range_of_their_differences():
    """Its percentiles are 0.012 and 99.988 %; a resample of one patient alone comes once in 256."""
    theirs = dict.fromkeys("abcd", 0.5)
    found = compare(table({"a": 0.4, "b": 0.55, "c": 0.6, "d": 0.8}), table(theirs))
    assert (found.low, found.high) == (pytest.approx(-0.1), pytest.approx(0.3))


def test_cases_of_one_patient_are_drawn_together():
    """Four patients with 3 cases each that differ alike: no more certain than four cases."""
    scores = {f"{patient}{n}": 0.5 for patient in "abcd" for n in range(3)}
    differences = {"a": -0.1, "b": 0.05, "c": 0.1, "d": 0.3}
    patients = [name[0] for name in scores]
    found = compare(table({name: 0.5 + differences[name[0]] for name in scores}, patients), table(scores, patients))
    assert (found.n_cases, found.n_patients) == (12, 4)
    assert (found.low, found.high) == (pytest.approx(-0.1), pytest.approx(0.3))


def test_of_many_patients_it_is_the_normal_interval():
    rng = np.random.default_rng(0)
    values = rng.normal(0.05, 0.1, 400)
    found = compare(
        table({f"c{n}": value for n, value in enumerate(values)}), table({f"c{n}": 0.0 for n in range(400)})
    )
    half = 1.96 * values.std() / 20
    assert (found.low, found.high) == (
        pytest.approx(values.mean() - half, abs=5e-4),
        pytest.approx(values.mean() + half, abs=5e-4),
    )
    assert compare(table({"a": 1}), table({"a": 0.5})).low is None


def test_the_percentiles_are_expanded_for_few_units():
    drawn = {}

    def statistic(places, axis=-1):
        drawn["values"] = np.arange(places[..., 0].size, dtype=float).reshape(places.shape[:-1])
        return drawn["values"]

    low, high = interval(statistic, 10, batch=5000, seed=0)
    tail = norm.cdf(-np.sqrt(10 / 9) * t.ppf(0.975, 9))  # 0.0085 instead of 0.025
    assert 0.008 < tail < 0.009
    assert (low, high) == (pytest.approx(4999 * tail), pytest.approx(4999 * (1 - tail)))


def test_the_same_cases_give_the_same_interval_and_resamples_without_a_score_are_left_out():
    rng = np.random.default_rng(1)
    ours, theirs = (table({f"c{n}": value for n, value in enumerate(rng.random(8))}) for _ in range(2))
    assert compare(ours, theirs) == compare(ours, theirs)

    def sometimes(cases, weights):
        return np.where(weights[:, 0] == 1, mean(cases, weights), np.nan)

    assert np.isfinite(paired_scores(ours, theirs, ["dice"], sometimes).low)
    assert paired_scores(ours, theirs, ["dice"], lambda c, w: np.full(len(w), np.nan)).low is None
