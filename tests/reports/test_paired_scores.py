"""Two models on the same cases: which cases are paired, and what the interval of the difference is."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from fedmed.reports.gain import paired_scores, patients_to_tell


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
    paired = compare(ours, theirs)
    assert (paired.n_cases, paired.n_patients) == (2, 2)
    assert paired.ours == pytest.approx(0.8) and paired.theirs == pytest.approx(0.55)
    assert paired.low is None and paired.high is None  # of two patients there is no interval
    assert compare(ours, table({"x": 1.0})) is None
    assert compare(ours, pd.DataFrame()) is None


def test_files_of_one_name_are_cases_of_their_own():
    ours, theirs = (pd.DataFrame({"case": ["ct", "ct"], "dice": texts, "patient": ["p", "q"]}) for texts in (
        ["0.4", "0.8"], ["0.3", "0.5"]))  # fmt: skip
    paired = compare(ours, theirs)
    assert (paired.n_cases, paired.ours, paired.theirs) == (2, pytest.approx(0.6), pytest.approx(0.4))


def test_a_case_whose_label_has_changed_is_not_compared():
    ours = table({"a": 0.9, "b": 0.7}, label=["normal", "ill"])
    theirs = table({"a": 0.6, "b": 0.5}, label=["normal", "normal"])
    assert compare(ours, theirs).n_cases == 1


def test_how_many_patients_would_tell():
    """Differences with a standard deviation of 10, of which 5 is to be shown: 31.4 in any table of paired samples."""
    assert patients_to_tell(10 / 3, 9, 5) == pytest.approx(31.4, abs=0.05)


def test_differences_that_are_all_the_same_have_no_interval_but_for_none_at_all():
    """A spread of nothing says that the score is coarse, not that the difference is sure."""
    names = {f"case_{n}": n / 10 for n in range(6)}
    paired = compare(table({name: value + 0.25 for name, value in names.items()}), table(names))
    assert (paired.low, paired.high, paired.error) == (None, None, None)
    same = compare(table(names), table(names))
    assert (same.low, same.high, same.error) == (0, 0, 0)


def test_of_even_differences_it_is_the_interval_of_student_s_t():
    theirs, apart = dict(zip("abcdef", [0.5, 0.7, 0.2, 0.4, 0.6, 0.3], strict=True)), [-0.1, 0.0, 0.1, 0.1, 0.2, 0.3]
    ours = {name: value + more for (name, value), more in zip(theirs.items(), apart, strict=True)}
    paired, student = compare(table(ours), table(theirs)), ttest_rel(list(ours.values()), list(theirs.values()))
    assert (paired.low, paired.high) == pytest.approx(tuple(student.confidence_interval()))
    assert paired.low < 0 and student.pvalue > 0.05


def test_cases_of_one_patient_are_left_out_together():
    """Five patients with 3 cases each that differ alike: no more certain than five cases."""
    differences = {"a": -0.1, "b": 0.05, "c": 0.1, "d": 0.3, "e": 0.2}
    scores = {f"{patient}{n}": 0.5 for patient in differences for n in range(3)}
    patients = [name[0] for name in scores]
    paired = compare(table({name: 0.5 + differences[name[0]] for name in scores}, patients), table(scores, patients))
    alone = compare(table({name: 0.5 + more for name, more in differences.items()}), table(dict.fromkeys("abcde", 0.5)))
    assert (paired.n_cases, paired.n_patients) == (15, 5)
    assert (paired.low, paired.high) == (pytest.approx(alone.low), pytest.approx(alone.high))


def test_of_many_patients_it_is_the_normal_interval():
    rng = np.random.default_rng(0)
    values = rng.normal(0.05, 0.1, 400)
    paired = compare(
        table({f"c{n}": value for n, value in enumerate(values)}), table({f"c{n}": 0.0 for n in range(400)})
    )
    half = 1.96 * values.std() / 20
    assert (paired.low, paired.high) == (
        pytest.approx(values.mean() - half, abs=5e-4),
        pytest.approx(values.mean() + half, abs=5e-4),
    )


def test_a_score_that_some_patient_alone_makes_possible_has_no_interval():
    rng = np.random.default_rng(1)
    ours, theirs = (table({f"c{n}": value for n, value in enumerate(rng.random(8))}) for _ in range(2))

    def needs_the_first(cases, weights):
        return np.where(weights[:, 0] == 1, mean(cases, weights), np.nan)

    assert np.isfinite(compare(ours, theirs).low)
    assert paired_scores(ours, theirs, ["dice"], needs_the_first).low is None
