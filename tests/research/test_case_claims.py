import pytest

from fedmed.errors import DataError
from research.runner.judgement import claims_markdown, judge
from research.runner.paired_statistics import least_p

from .conftest import DICE

LOW = [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]] * 2
HIGH = [[0.2, 0.4, 0.6, 0.8, 0.7, 0.9], [0.1, 0.3, 0.5, 0.7, 0.6, 0.8]]


@pytest.fixture
def compare(case_claim, evidence):
    """The comparison of two arms at site_1, and what the table of comparisons says of it."""

    def compared(frames, better="a", worse="b", *sites, **more):
        (finding,) = case_claim(better, worse, *sites, **more).findings(evidence(*frames))
        return finding, dict(finding.record)

    return compared


def test_seeds_do_not_multiply_cases(runs, compare):
    two, written = compare([runs("a", HIGH), runs("b", LOW)])
    many, of_many = compare([runs("a", HIGH * 3), runs("b", LOW * 3)])
    assert two.p == many.p == pytest.approx(2 / 64)  # six cases, all higher
    assert written["difference"] == of_many["difference"] == pytest.approx((1.5 + 0.9) / 12)
    assert [written[key] for key in ("n_cases", "n_seeds", "seeds_agreeing", "seeds_against")] == [6, 2, 2, 0]
    assert (two.direction, written["effect"], written["p_seeds"]) == (1, 1, None)
    assert of_many["p_seeds"] == pytest.approx(2 / 64)


def test_crops_of_one_patient_are_not_independent(runs, compare):
    def owned(frame):
        return frame.assign(patient=[f"patient_{int(unit[-2:]) // 2}" for unit in frame["unit"]])

    finding, written = compare([owned(runs("a", HIGH)), owned(runs("b", LOW))])
    assert finding.p == pytest.approx(2 / 8), "three patients, all higher"
    assert (written["n_cases"], written["n_patients"]) == (6, 3) and dict(finding.cells)["patients"] == "3"
    unknown, _ = compare([runs("a", HIGH).assign(patient=""), runs("b", LOW).assign(patient="")])
    assert unknown.p == pytest.approx(2 / 64)


def test_the_other_way_round(runs, compare):
    result, written = compare([runs("a", HIGH), runs("b", LOW)], "b", "a")
    assert (result.direction, written["seeds_agreeing"], written["seeds_against"]) == (-1, 0, 2)
    assert result.seeds == pytest.approx((-1.5 / 6, -0.9 / 6))


def test_an_arm_of_several_models_has_the_mean_of_their_scores(runs, compare):
    """Such as the models of single sites, all tested at a site that none of them is of."""
    low = [[score - 0.05 for score in seed] for seed in LOW]
    high = [[score + 0.05 for score in seed] for seed in LOW]
    one, written = compare([runs("a", HIGH), runs("b", LOW)])
    several, of_several = compare([runs("a", HIGH), runs("b", low), runs("b", high)])
    assert several.p == one.p and several.seeds == pytest.approx(one.seeds)
    assert of_several["difference"] == pytest.approx(written["difference"]) and of_several["n_cases"] == 6
    uneven = runs("b", high)
    with pytest.raises(DataError, match="has more scores than others"):
        compare([runs("a", HIGH), runs("b", low), uneven[uneven["unit"] != uneven["unit"].iloc[0]]])


def test_two_arms_alike(runs, compare):
    result, written = compare([runs("a", HIGH), runs("b", HIGH)])
    assert (written["difference"], result.p, result.direction, written["seeds_agreeing"]) == (0, 1, 0, 0)


def test_validation_has_seeds_only(runs, compare):
    def valid(n):
        low, high = ([[dice + 0.01 * i] for i in range(n)] for dice in (0.5, 0.6))
        return compare([runs("a", high, list="valid"), runs("b", low, list="valid")], list="valid")[1]

    assert (valid(4)["p_seeds"], valid(4)["p"]) == (None, None)
    assert (valid(5)["p_seeds"], valid(5)["p"]) == (pytest.approx(2 / 32), None)
    assert (valid(6)["p"], valid(6)["effect"]) == (pytest.approx(2 / 64), 1)


def test_other_scores_do_not_count(runs, compare):
    scores = [runs("a", HIGH), runs("b", LOW)]
    others = [runs("a", LOW, model="selected"), runs("a", LOW, site="site_2"), runs("c", [[0.0]])]
    assert compare(scores + others) == compare(scores)


def test_holm_is_over_all_comparisons_with_a_p(runs, case_claim, evidence):
    frames = [runs("a", HIGH), runs("b", LOW), runs("a", [[0.2]], list="valid"), runs("b", [[0.1]], list="valid")]
    frames += [runs("c", HIGH)]
    claims = [case_claim("a", "b"), case_claim("a", "b", id=2, list="valid"), case_claim("c", "b", id=3)]
    p = [one.findings[0].p_holm for one in judge(claims, evidence(*frames))]
    assert p == [pytest.approx(4 / 64), None, pytest.approx(4 / 64)]


def test_pairs_must_match(runs, compare):
    high, low = runs("a", HIGH), runs("b", LOW)
    with pytest.raises(DataError, match="arm 'b', site 'site_1', seed 1 lacks case 'case_05'"):
        compare([high, low[:-1]])
    with pytest.raises(DataError, match="arm 'b', site 'site_1', seed 0 lacks case 'case_05'"):
        compare([high, runs("b", [row[:-1] for row in LOW])])
    with pytest.raises(DataError, match="arm 'a' has no scores of seed 1 at site 'site_1'"):
        compare([high[:6], low])


def test_so_few_patients_that_no_p_is_small_are_said(runs, evidence, case_claim):
    """Of five pairs the smallest two-sided p is 2/32."""
    for cases, words in ((5, "n.s.: 5 patients cannot tell"), (6, "✓")):
        high, low = ([[value + n / 10 for n in range(cases)]] * 6 for value in (0.5, 0.2))
        judged = judge([case_claim("good", "bad")], evidence(runs("good", high), runs("bad", low)))
        assert claims_markdown("T", judged, {"dice": DICE}).count(f"| 6/6 | {words} |") == 1
        assert judged[0].findings[0].p == pytest.approx(least_p(cases))
