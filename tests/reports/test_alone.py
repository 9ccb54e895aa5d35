"""Hospitals alone and together: the table of a study, and who withholds what it gains."""

from html import unescape
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import bootstrap, ttest_rel

from fedmed.reports import alone
from fedmed.reports.gain import paired_scores
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from tests.reports import records

pytestmark = pytest.mark.usefixtures("no_charts")
GAINED = {"gain_low": 0.02, "gain_high": 0.10, "gain_error": 0.02, "gain_p": 0.004, "gain_better": 17}
LOST = {"gain_low": -0.09, "gain_high": -0.01, "gain_error": 0.02, "gain_p": 0.012, "gain_better": 3}


def told(alone_score, gain, p=None, **values):
    more = {"gain": gain, "gain_patients": 20, **({"gain_p": p} if p is not None else {})}
    return {"dice_mean": alone_score, "dice_std": 0.1, "n_cases": 20, **values, **more}


@pytest.fixture
def run(fake_run):
    """Five hospitals with labels, one of which withholds its gain, and one without labels."""
    sites = dict.fromkeys(("ct_a", "ct_b", "ct_c", "ct_d", "ct_f"), "supervised") | {"ct_e": "unsupervised"}
    folder = fake_run(rounds=2, sites=sites)
    test = {site: {"dice_mean": 0.66, "dice_std": 0.1, "n_cases": 20} for site in sites}
    answers = {
        "ct_a": told(0.60, 0.06, **GAINED),
        "ct_b": told(0.71, -0.05, **LOST),
        "ct_c": told(0.64, 0.02, gain_low=0.001, gain_high=0.04, gain_error=0.01, p=0.03),
        "ct_f": told(0.65, 0.01, gain_low=-0.02, gain_high=0.04, gain_error=0.015, p=0.5),
        "ct_d": {"n_cases": 0, "min_cases": 10},
    }
    records.change(folder, "result", test=test, test_alone=answers)
    return folder


def test_who_gained_who_lost_and_who_withholds_it(run, charts):
    rows = {row.name: row for row in alone.hospitals(read_run(run))}
    assert {name: row.sure for name, row in rows.items() if row.sure} == {"ct_a": "better off", "ct_b": "worse off"}
    assert [rows[name].p for name in ("ct_a", "ct_b", "ct_c")] == pytest.approx([0.016, 0.036, 0.06])  # times 4, 3, 2
    assert "chance among so many" in rows["ct_c"].finding
    assert rows["ct_d"].gain.theirs is None and "fewer than 10" in rows["ct_d"].finding
    assert "cannot train alone" in rows["ct_e"].finding and rows["ct_e"].scores["together"] == 0.66
    text = unescape(page(read_run(run)))
    for words in ("better off: ct_a", "worse off: ct_b", "17 of 20", "best model of a single hospital is that of ct_b"):
        assert words in text
    assert 'class="alone"' in text
    screen = " ".join(records.shown(*alone.on_screen(read_run(run)), width=1000).split())
    assert "ct_d (fewer than 10 patients)" in screen and "0.600" in screen


def test_a_study_whose_hospitals_all_withhold_their_gain_has_a_page(run, charts):
    withheld = dict.fromkeys(("ct_a", "ct_b", "ct_c", "ct_d", "ct_f"), {"n_cases": 0, "min_cases": 10})
    records.change(run, "result", test_alone=withheld)
    text = unescape(page(read_run(run)))
    assert "Withheld by the hospital itself: ct_a (fewer than 10 patients)" in text and 'class="alone"' not in text


def test_a_run_of_which_no_site_trained_alone_has_no_such_table(fake_run):
    run = read_run(fake_run(rounds=2))
    assert not alone.hospitals(run) and not alone.on_screen(run) and "Alone and together" not in page(run)


def test_holm_is_the_closed_test_of_bonferroni():
    """The largest p of all sets of hypotheses that hold one (Marcus, Peritz and Gabriel 1976, Biometrika 63, 655)."""
    p = [0.03, 0.001, 0.2, 0.03, 0.9]
    sets = [chosen for size in range(1, 6) for chosen in combinations(range(5), size)]
    of_sets = {chosen: min(1, len(chosen) * min(p[n] for n in chosen)) for chosen in sets}
    closed = [max(value for chosen, value in of_sets.items() if n in chosen) for n in range(5)]
    assert alone.holm(p) == pytest.approx(closed) and alone.holm([]) == []


def test_p_and_interval_are_those_of_scipy_where_scipy_has_them():
    """Of a mean without skewness Student's; of any, near to what a bootstrap over patients says of 60 patients."""
    draw = np.random.default_rng(1)
    names, base = [f"p{n}" for n in range(60)], draw.uniform(0.3, 0.9, 60)
    change = np.concatenate([(half := draw.normal(0, 0.05, 30)), -half]) + 0.02  # symmetric: no skewness

    def cases(values):
        return pd.DataFrame({"case": names, "patient": names, "dice": values.astype(str)})

    paired = paired_scores(
        cases(base + change), cases(base), ["dice"], lambda c, w: w @ c["dice"].to_numpy(float) / w.sum(axis=1)
    )
    student = ttest_rel(base + change, base)
    assert paired.p == pytest.approx(student.pvalue, rel=1e-6)
    assert (paired.low, paired.high) == pytest.approx(tuple(student.confidence_interval(0.95)), abs=1e-9)
    drawn = bootstrap((change,), np.mean, n_resamples=4000, method="BCa", rng=draw).confidence_interval
    assert (paired.low, paired.high) == pytest.approx(tuple(drawn), abs=0.003)
