"""Comparisons and verdicts: clear differences are found either way round, others are not."""

import numpy as np
import pytest

from fedmed.errors import DataError
from research.runner.judgement import claims_markdown, judge
from research.runner.score_table import joined
from research.runner.table_claim import Evidence

from .conftest import IMAGES, predictions


def verdicts(claims, evidence):
    return [one.verdict for one in judge(claims, evidence)]


def test_a_clear_difference_holds_or_is_contrary_and_a_small_one_is_open(image_evidence, patient_claim):
    evidence = image_evidence({"good": 0.5, "bad": 4.0, "same": 0.5})
    claims = [patient_claim("good", "bad"), patient_claim("bad", "good", id=2), patient_claim("good", "same", id=3)]
    claims.append(patient_claim("good", "bad", id="r", report=True))
    assert verdicts(claims, evidence) == ["✓", "✗", "n.s.", "reported"]
    text = claims_markdown("T", judge(claims, evidence), IMAGES)
    assert "| 1 | t | ✓ |" in text and "3/3" in text and "| linear, 100 % | auroc |" in text


def test_the_interval_holds_the_difference_and_the_means_are_those_of_the_seeds(image_evidence, patient_claim):
    evidence = image_evidence({"good": 0.5, "bad": 4.0}, draws=("0", "1"))
    (finding,) = patient_claim("good", "bad", scores=["accuracy"]).findings(evidence)
    record = dict(finding.record)
    assert record["low"] <= record["difference"] <= record["high"] and finding.p < 0.01
    assert np.mean(finding.seeds) == pytest.approx(record["difference"])


def test_many_comparisons_leave_room_for_holm(image_evidence, patient_claim):
    evidence = image_evidence({f"good {i}": 0.5 for i in range(30)} | {"bad": 4.0})
    judged = judge([patient_claim(f"good {i}", "bad", id=i) for i in range(30)], evidence)
    assert max(one.findings[0].p_holm for one in judged) <= 0.005


def test_two_arms_alike_differ_in_nothing(patient_claim):
    frames = [predictions("good", 0, 2), predictions("good", 0, 2).assign(arm="same")]
    (finding,) = patient_claim("good", "same").findings(Evidence(joined(frames), IMAGES, {}))
    assert (finding.direction, finding.p, dict(finding.record)["seeds_agreeing"]) == (0, 1, 0)


def test_a_part_of_a_claim_is_not_judged(image_evidence, patient_claim):
    assert verdicts([patient_claim("good", "bad")], image_evidence({"good": 1})) == ["not run"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (predictions("bad", 1, 1), "run both with the same"),
        (predictions("bad", 0, 1).iloc[[*range(59), *range(60, 119)]], "units of another list"),
        (predictions("bad", 0, 1).iloc[:-1], "the metrics are of different units"),
        (predictions("bad", 0, 1).iloc[[*range(60), *range(60)]], "a unit is there twice"),
    ],
    ids=["seeds", "images", "metrics", "twice"],
)
def test_what_cannot_be_paired_is_refused(patient_claim, other, words):
    evidence = Evidence(joined([predictions("good", 0, 1), other]), IMAGES, {})
    with pytest.raises(DataError, match=words):
        judge([patient_claim("good", "bad")], evidence)


def test_three_patients_cannot_tell_and_the_page_says_so(patient_claim):
    frames = [predictions(arm, seed, error) for arm, error in (("good", 0.5), ("bad", 4.0)) for seed in range(3)]
    frame = joined([one[one["patient"].isin(["p0", "p1", "p2"])] for one in frames])
    judged = judge([patient_claim("good", "bad")], Evidence(frame, IMAGES, {}))
    assert judged[0].verdict == "n.s." and judged[0].findings[0].p is None
    assert "| – | – | 3/3 | n.s.: 3 patients cannot tell |" in claims_markdown("T", judged, IMAGES)


def test_the_interval_holds_0_where_p_is_above_5_percent(image_evidence, patient_claim):
    claim = patient_claim("a", "bb", scores=["accuracy"])
    findings = [claim.findings(image_evidence({"a": error, "bb": 2}))[0] for error in np.linspace(1, 4, 12)]
    outside = [dict(one.record)["low"] > 0 or dict(one.record)["high"] < 0 for one in findings]
    assert outside == [one.p < 0.05 for one in findings] and 0 < sum(outside) < len(findings)
