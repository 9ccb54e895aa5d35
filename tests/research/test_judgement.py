import csv
import io
from dataclasses import replace

import pytest

from research.runner.judgement import claims_markdown, comparisons_csv, judge
from research.runner.words_of_tables import probability, seeds_phrase, signed

from .conftest import DICE

LOW = [[0.1 + 0.05 * case for case in range(8)]] * 2
HIGH = [[dice + 0.1 + 0.01 * case for case, dice in enumerate(row)] for row in LOW]  # eight cases up: p = 2/256
MIXED = [HIGH[0], [dice - 0.01 for dice in LOW[1]]]  # up in the mean of the seeds, down in one of them
NOISE = [[dice + (0.02 if case % 2 else -0.02) for case, dice in enumerate(row)] for row in LOW]
DOWN = [[dice - 0.05 - 0.001 * case for case, dice in enumerate(row)] for row in LOW]


@pytest.fixture
def verdict(runs, evidence, case_claim):
    def judged(*arms, report=False, **more):
        """Verdict of 'every arm is better than LOW'; arms are matrices."""
        scores = [runs("low", LOW), *(runs(f"arm {index}", dice) for index, dice in enumerate(arms))]
        lines = [case_claim(f"arm {index}", "low").holds[0] for index in range(len(arms))]
        claim = case_claim("arm 0", "low", report=report).model_copy(update={"holds": lines, **more})
        return judge([claim], replace(evidence(*scores), data="demo"))[0]

    return judged


def test_verdicts_of_one_comparison(verdict):
    high = verdict(HIGH)
    assert high.verdict == "✓" and high.findings[0].p_holm == pytest.approx(2 / 256)
    assert verdict(DOWN).verdict == "✗"
    assert verdict(NOISE).verdict == verdict(LOW).verdict == "n.s."
    assert verdict(HIGH, report=True).verdict == verdict(DOWN, report=True).verdict == "reported"


def test_a_claim_chosen_after_its_numbers_were_seen_is_never_confirmed_by_them(verdict):
    seen = verdict(HIGH, chosen_after=["demo"])
    assert seen.verdict == "◇" and verdict(DOWN, chosen_after=["demo"]).verdict == "✗"
    text = claims_markdown("T", [seen], {"dice": DICE})
    assert "✓ |" not in text and "| ◇ |" in text and "needs data of its own" in text.replace("\n", " ")
    assert "◇" in comparisons_csv([seen])
    assert verdict(HIGH, chosen_after=["another"]).verdict == "✓"


def test_a_seed_the_other_way_round_leaves_it_open(verdict):
    mixed = verdict(MIXED)
    assert mixed.findings[0].p_holm < 0.05 and dict(mixed.findings[0].record)["difference"] > 0
    assert mixed.verdict == "n.s."


def test_every_comparison_must_hold_and_one_contrary_is_enough(verdict):
    assert verdict(HIGH, HIGH).verdict == "✓"
    assert verdict(HIGH, NOISE).verdict == "n.s."
    assert verdict(HIGH, NOISE, [[dice - 0.1 for dice in row] for row in LOW]).verdict == "✗"


def test_holm_can_take_a_verdict_away(verdict):
    assert verdict(*[HIGH] * 6).verdict == "✓"  # 6 * 2/256 < 0.05
    assert verdict(*[HIGH] * 7).verdict == "n.s."


def test_a_mean_against_the_ranks_is_no_verdict(runs, evidence, case_claim):
    """One huge gain among many small losses: p speaks of the losses, the mean of the gain."""
    low, high = [[0.1 + 0.01 * case for case in range(20)]], [[0.09 + 0.01 * case for case in range(20)]]
    high[0][0] = 0.9
    judged = judge([case_claim("a", "b")], evidence(runs("a", high), runs("b", low)))[0]
    assert dict(judged.findings[0].record)["difference"] > 0 and judged.findings[0].p_holm < 0.05
    assert judged.verdict == "n.s."


@pytest.mark.parametrize(("n_seeds", "expected"), [(3, "direction"), (6, "✓")])
def test_validation_means(runs, evidence, case_claim, n_seeds, expected):
    def verdict(gain):
        low, high = [[0.5]] * n_seeds, [[0.5 + gain + 0.01 * seed] for seed in range(n_seeds)]
        scores = evidence(runs("a", high, list="valid"), runs("b", low, list="valid"))
        return judge([case_claim("a", "b", list="valid")], scores)[0].verdict

    assert verdict(0.1) == expected
    assert verdict(-0.01) == "n.s."


def test_an_arm_or_a_site_without_scores_leaves_the_other_claims(runs, evidence, case_claim):
    """Of partly shared models, only sites with a decoder are scored."""
    scores = evidence(runs("a", HIGH), runs("b", LOW), runs("a", HIGH, site="site_2"))
    claims = [case_claim("a", "c"), case_claim("a", "b", "site_2", id=2), case_claim("a", "b", id=3)]
    assert [one.verdict for one in judge(claims, scores)] == ["not run", "not run", "✓"]


def test_a_comparison_of_two_claims_is_tested_once(runs, evidence, case_claim):
    claims = [case_claim("a", "b"), case_claim("a", "b", id=2, report=True)]
    judged = judge(claims, evidence(runs("a", HIGH), runs("b", LOW)))
    assert [one.findings[0].p_holm for one in judged] == pytest.approx([2 / 256] * 2)


def test_markdown_and_csv(verdict, runs, evidence, case_claim):
    judged = [verdict(HIGH)]
    text = claims_markdown("Losses", judged, {"dice": DICE})
    assert text.startswith("# Losses: claims\n\n| id | claim | verdict |\n| --- | --- | --- |\n| 1 | better | ✓ |\n")
    assert "| 1 | arm 0 | low | site_1 | test, last | 8 | +0.135 | 0.008 | +1.00 | 2/2 | ✓ |" in text
    assert "each case's Dice averaged" in text and "One seed" not in text
    (row,) = csv.DictReader(io.StringIO(comparisons_csv(judged)))
    assert (row["claim"], row["better"], row["n_cases"], row["seeds_agreeing"]) == ("1", "arm 0", "8", "2")
    assert float(row["difference"]) == pytest.approx(0.135)
    assert (row["p"], row["p_seeds"]) == (str(2 / 256), "")
    one_seed = judge([case_claim("a", "b")], evidence(runs("a", HIGH[:1]), runs("b", LOW[:1])))
    assert "One seed was run" in claims_markdown("T", one_seed, {"dice": DICE})


def test_numbers_as_read():
    assert [signed(x, 2) for x in (0.014, -0.016, -0.001)] == ["+0.01", "−0.02", "0.00"]
    assert [probability(x) for x in (None, 0.0004, 0.0196)] == ["–", "< 0.001", "0.020"]
    assert seeds_phrase([5, 5]) == "mean ± standard deviation over 5 seeds"
    assert seeds_phrase([1, 5, 3]) == "mean ± standard deviation over 1 to 5 seeds"
