"""Targets with a number, of scores whose means are worked out by hand."""

import pytest

from fedmed.errors import JobError
from research.runner.judgement import claims_markdown, comparisons_csv, judge
from research.runner.table_claim import read_claims

from .conftest import DICE

ROOM = "research.runner.target_claims"
LOW = [0.1 + 0.05 * case for case in range(8)]
SITES = ["site_1", "site_2"]


def raised(gain):
    return [dice + gain for dice in LOW]


def arm(*gains, base=LOW):
    """A row of scores for each seed: ``base`` and a gain, which grows a little from case to case so that none tie."""
    return [[dice + gain + 0.0001 * (case - 3.5) for case, dice in enumerate(base)] for gain in gains]


@pytest.fixture
def judged(runs, evidence):
    """Judge one claim by {arm: matrix of Dice} at site_1."""

    def make(kind, arms, frames=(), **settings):
        content = {"id": 1, "text": "t", "path": f"{ROOM}.{kind}", "arm": "new", "sites": ["site_1"], **settings}
        claims = read_claims([content], None, {"arm": [*arms, "gone"], "site": SITES, "score": ["dice"]})
        return judge(claims, evidence(*(runs(name, dice) for name, dice in arms.items()), *frames))[0]

    return make


@pytest.fixture
def gain(judged):
    def make(new, silent=(0, 0, 0, 0), left_out=(-0.1, -0.1, -0.1, -0.1), at_least=0.02):
        arms = {"new": arm(*new), "silent": [raised(g) for g in silent], "left out": [raised(g) for g in left_out]}
        return judged("GainOverControls", arms, over=["left out", "silent"], at_least=at_least)

    return make


def test_a_gain_is_over_the_better_control(gain):
    one = gain([0.03, 0.02, 0.04, 0.03])
    (finding,) = one.findings
    cells = dict(finding.cells)
    assert (cells["than"], cells["difference"], cells["wanted"]) == ("silent", "+0.030", "+0.020")
    assert finding.p_holm == pytest.approx(2 / 256), "eight cases, all higher, and one test in the table"
    assert one.verdict == "✓"
    other = gain([0.03, 0.02, 0.04, 0.03], left_out=[0.02] * 4).findings[0]
    assert dict(other.cells)["than"] == "left out" and other.difference == pytest.approx(0.01)


def test_one_seed_may_be_the_other_way_round_and_two_may_not(gain):
    assert gain([0.05, 0.05, 0.05, -0.01]).verdict == "✓"
    assert gain([0.07, 0.07, -0.01, -0.01]).verdict == "n.s.", "a mean of +0.03, every case higher, but two seeds lower"
    assert gain([0.09, -0.01], silent=[0] * 2, left_out=[0] * 2).verdict == "n.s.", "of two seeds both must agree"


def test_a_gain_that_is_too_small_or_a_loss(gain):
    assert gain([0.01] * 4).findings[0].p_holm < 0.05 and gain([0.01] * 4).verdict == "n.s."
    assert gain([0.01] * 4, at_least=0).verdict == "✓"
    assert gain([-0.01] * 3 + [0.001]).verdict == "✗"


def test_a_gain_without_enough_cases_is_none(judged):
    few = {"new": [row[:5] for row in arm(0.3, 0.3, 0.3)], "silent": [LOW[:5]] * 3}
    one = judged("GainOverControls", few, over=["silent"], at_least=0.02)
    assert one.findings[0].p == pytest.approx(2 / 32) and one.verdict == "n.s."


def test_not_lower_in_the_mean_or_in_every_seed(judged):
    def verdict(*gains, **more):
        arms = {"new": arm(*gains), "silent": [LOW] * 3, "left out": [raised(-0.5)] * 3}
        return judged("NotLower", arms, than=["silent", "left out"], margin=0.01, **more)

    assert verdict(-0.02, 0, 0).verdict == "✓", "-0.0067 in the mean"
    assert verdict(-0.02, 0, 0, in_every_seed=True).verdict == "✗"
    assert verdict(-0.009, 0, 0, in_every_seed=True).verdict == "✓"
    below = verdict(-0.02, -0.01, -0.01)
    assert below.verdict == "✗" and [str(each.outcome) for each in below.findings] == ["✗", "✓"]
    cells = dict(verdict(-0.02, 0, 0, in_every_seed=True).findings[0].cells)
    assert (cells["difference"], cells["worst seed"], cells["limit"]) == ("−0.007", "−0.020", "−0.010, in every seed")
    assert below.findings[0].p is None, "it is no test, so Holm's correction does not count it"


@pytest.mark.parametrize(
    ("new", "end", "part", "verdict"),
    [(0.06, 0.1, "60 %", "✓"), (0.05, 0.1, "50 %", "✓"), (0.04, 0.1, "40 %", "✗"), (-0.02, 0.1, "-20 %", "✗"),
     (0.12, 0.1, "120 %", "✓"), (0.06, -0.1, "–", "n.s.")],
)  # fmt: skip
def test_part_of_a_distance(judged, new, end, part, verdict):
    arms = {"new": [raised(new)] * 2, "left out": [LOW] * 2, "all": [raised(end)] * 2}
    one = judged("CoversDistance", arms, start="left out", end="all", at_least=0.5)
    cells = dict(one.findings[0].cells)
    assert (cells["part"], cells["wanted"], one.verdict) == (part, "50 %", verdict)


def test_every_site_must_hold_and_an_arm_that_was_not_run_is_said(judged, runs):
    arms = {"new": arm(0.05, 0.05, 0.05), "silent": [LOW] * 3}
    elsewhere = [runs("new", [LOW] * 3, site="site_2"), runs("silent", [raised(0.1)] * 3, site="site_2")]
    settings = {"than": ["silent"], "margin": 0.01, "sites": SITES}
    one = judged("NotLower", arms, elsewhere, **settings)
    assert [str(each.outcome) for each in one.findings] == ["✓", "✗"] and one.verdict == "✗"
    assert judged("NotLower", arms, **settings).verdict == "not run"
    assert judged("GainOverControls", arms, over=["silent", "gone"], at_least=0).verdict == "not run"


def test_files_of_all_three_kinds(judged):
    arms = {"new": arm(0.05, 0.05, 0.05), "silent": [LOW] * 3, "all": [raised(0.1)] * 3}
    claims = [
        judged("GainOverControls", arms, over=["silent"], at_least=0.02),
        judged("NotLower", arms, than=["silent"], margin=0.01),
        judged("CoversDistance", arms, start="silent", end="all", at_least=0.5),
    ]
    text = claims_markdown("T", claims, {"dice": DICE})
    assert "| 1 | new | silent | site_1 | test, last | 8 | +0.050 | 0.008 | +1.00 | +0.020 | 3/3 | ✓ |" in text
    assert "| 1 | new | silent | site_1 | 8 | +0.050 | +0.050 | −0.010 | ✓ |" in text
    assert "| 1 | new | silent | all | site_1 | +0.100 | +0.050 | 50 % | 50 % | ✓ |" in text
    assert text.count("**Targets.**") == 1
    assert len(comparisons_csv(claims[1:]).splitlines()) == 3


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("GainOverControls", {"over": ["new"], "at_least": 0}, "'new' is compared with itself"),
        ("GainOverControls", {"over": [], "at_least": 0}, "'over' is"),
        ("NotLower", {"than": ["other"], "margin": 0.01}, "'other' is not an arm"),
        ("NotLower", {"than": ["silent"], "margin": -0.01}, "'margin' is -0.01"),
        ("CoversDistance", {"start": "silent", "end": "silent", "at_least": 0}, "'at_least' is 0"),
    ],
)
def test_a_malformed_target_is_named(judged, kind, settings, words):
    with pytest.raises(JobError, match=words):
        judged(kind, {"new": arm(0.0), "silent": [LOW]}, **settings)
