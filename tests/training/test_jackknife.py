"""A test of few videos at few sites keeps its 5 %, and its interval holds the truth as often as it says."""

import numpy as np
import pytest
from scipy.stats import binom, ttest_1samp

from fedmed.training.auroc import class_aurocs, macro_mean
from fedmed.training.jackknife import Estimate, estimate, leave_one_out

RUNS = 500
SITES = [(2, 3), (2, 2, 5), (2, 2, 3, 5, 3), (5,), (12,)]  # videos of each site
DRAWN = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: (rng.gamma(4, size=shape) - 4) / 2,
    "heavy tails": lambda rng, shape: rng.standard_t(3, size=shape),
    "skewed scores": lambda rng, shape: rng.beta(1, 4, shape) - rng.beta(1, 4, shape),
}
EACH = pytest.mark.parametrize("kind", DRAWN)
AT = pytest.mark.parametrize("sites", SITES, ids=str)


def mean_of_sites(values):
    """The mean over sites of the means over their videos, of all and without each video, and the videos' sites."""
    strata = np.repeat(range(len(values)), [len(local) for local in values])
    flat = np.concatenate(values)

    def score(weights):
        local = [weights[:, strata == k] for k in range(len(values))]
        return np.mean([w @ flat[strata == k] / np.maximum(w.sum(1), 1) for k, w in enumerate(local)], axis=0)

    return leave_one_out(score, [f"{place:03}" for place in range(len(flat))]), strata


def studies(kind, sites):
    """Return the scores of RUNS studies, in none of which two models differ: (videos,) of each site."""
    rng = np.random.default_rng([len(kind), *sites])
    values = [DRAWN[kind](rng, (RUNS, n)) for n in sites]
    return [[local[run] for local in values] for run in range(RUNS)]


def bootstrap_p(kind, sites, resamples=400):
    """Return p of as many studies by the smaller tail of resampled videos, site by site."""
    rng, p = np.random.default_rng(0), []
    for values in studies(kind, sites):
        means = [
            rng.multinomial(len(local), np.full(len(local), 1 / len(local)), resamples) @ local for local in values
        ]
        drawn = np.mean([mean / n for mean, n in zip(means, sites, strict=True)], axis=0)
        p.append(2 * min((1 + tail.sum()) / (1 + resamples) for tail in (drawn <= 0, drawn >= 0)))
    return np.array(p)


def keeps(p, level):
    """True where false alarms are no more than the level allows, but for once in a thousand such simulations."""
    return (np.array(p) < level).sum() <= binom.ppf(0.999, len(p), level)


@EACH
@AT
def test_false_alarms_are_no_more_than_promised_and_intervals_say_the_same(kind, sites):
    reported = [estimate(*mean_of_sites(values)) for values in studies(kind, sites)]
    differs, above = (np.array([getattr(one, name)() for one in reported]) for name in ("p_differs", "p_above"))
    for p in (differs, above):
        assert keeps(p, 0.05) and keeps(p, 0.01)
    for level in (0.95, 0.99):
        ends = np.array([one.interval(level) for one in reported])
        outside = (ends[:, 0] > 0) | (ends[:, 1] < 0)
        assert outside.sum() <= binom.ppf(0.999, RUNS, 1 - level)
        if level == 0.95:
            assert (outside == (differs < 0.05)).all()
        assert ((ends[:, 0] > 0) == (2 * above < 1 - level)).all()


@AT
def test_the_percentile_bootstrap_does_not_keep_them(sites):
    p = bootstrap_p("normal", sites)
    assert not keeps(p, 0.05) and not keeps(p, 0.01), "or this simulation could not tell"


def test_a_difference_is_found():
    """As many runs of a t test would find it, less what two cautions cost: a power of 0.81 and 0.88."""
    rng = np.random.default_rng(0)
    for sites, most, least in (((20,), 0.82, 0.74), ((5, 5, 5, 5), 0.86, 0.7)):
        shift = 3 / np.sqrt(sum(sites))
        values = [rng.normal(shift, 1, (RUNS, n)) for n in sites]
        reported = [estimate(*mean_of_sites([local[run] for local in values])) for run in range(RUNS)]
        assert least < np.mean([one.p_differs() < 0.05 for one in reported]) < most


def test_an_auroc_of_few_patients_keeps_them_too():
    """Two models of equal worth, whose probabilities go together, on twenty patients of whom ten are ill."""
    rng, ill, p = np.random.default_rng(0), np.arange(20) % 2, []
    for _ in range(300):
        shared, local = rng.normal(ill, 1), rng.normal(0, 0.7, (2, 20))
        a, b = (
            leave_one_out(lambda w, q=shared + each: macro_mean(class_aurocs(np.c_[-q, q], ill, w)), range(20))
            for each in local
        )
        reported = estimate(a - b)
        p.append(1.0 if reported is None else reported.p_differs())
    assert keeps(p, 0.05) and keeps(p, 0.01)


def test_of_one_mean_it_is_student_s_t():
    values = np.array([-2.0, -1.0, 0.0, 1.5, 3.5])
    values -= values.mean() - 1  # symmetrical enough for none of it to be left
    reported = estimate(*mean_of_sites([values]))
    student = ttest_1samp(values, 0)
    assert (reported.value, reported.freedom) == (pytest.approx(1), 4)
    assert reported.value / reported.error == pytest.approx(student.statistic)
    plain = Estimate(reported.value, reported.error, reported.freedom)
    assert plain.p_differs() == pytest.approx(student.pvalue) and plain.p_differs() <= reported.p_differs()
    assert plain.interval() == pytest.approx(tuple(student.confidence_interval()))


def test_sites_are_strata():
    """Videos that are alike within each site make a score sure, however far the sites are apart; by hand."""
    near, far = np.array([0.1, 0.3]), np.array([5.0, 5.1, 5.2])
    reported = estimate(*mean_of_sites([near, far]))
    first, second = near.var(ddof=1) / 2 / 4, far.var(ddof=1) / 3 / 4
    assert reported.error**2 == pytest.approx(first + second)
    equal = (1 / 2 + 1 / 3) ** 2 / (1 / 4 + 1 / 9 / 2)
    assert reported.freedom == pytest.approx(min((first + second) ** 2 / (first**2 + second**2 / 2), equal))


def test_the_interval_reaches_further_on_the_side_of_the_longer_tail():
    reported = estimate(*mean_of_sites([np.array([0.0, 0.1, 0.1, 0.2, 0.2, 1.5])]))
    low, high = reported.interval()
    assert reported.skewness > 0 and high - reported.value > 1.5 * (reported.value - low)


def test_cases_of_one_unit_are_left_out_together():
    weights = []
    values = leave_one_out(lambda local: weights.append(local) or local.sum(1), ["b", "a", "b"])
    assert np.concatenate(weights).tolist() == [[1, 1, 1], [1, 0, 1], [0, 1, 0]] and values.tolist() == [3, 2, 1]


def test_many_cases_are_weighed_a_few_units_at_a_time(monkeypatch):
    monkeypatch.setattr("fedmed.training.jackknife.CELLS", 100)
    sizes = []
    values = leave_one_out(lambda local: sizes.append(local.size) or local.sum(1), range(40))
    assert values.tolist() == [40, *[39] * 40] and max(sizes) <= 100


@pytest.mark.parametrize(
    ("values", "strata"),
    [
        ([0.1, 0.2, 0.0, 0.1], None),
        ([0.1] * 5, ["a", "a", "b", "b"]),
        ([0.1, 0.2, 0.0, 0.1, 0.1, 0.2, 0.1], [*"aaaaab"]),
        ([0.1, np.nan, 0.0, 0.1, 0.1], None),
        ([0.1] * 7, None),
    ],
    ids=["three units", "two of two sites", "one video of a site", "no score without one", "all the same"],
)
def test_where_units_cannot_tell_nothing_is_said(values, strata):
    assert estimate(values, strata) is None


def test_two_models_that_do_the_same_do_not_differ():
    reported = estimate([0.0] * 7)
    assert (reported.p_differs(), reported.p_above(), reported.interval()) == (1, 0.5, (0, 0))
