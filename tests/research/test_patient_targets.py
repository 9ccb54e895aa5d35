"""Targets with a number of scores of many images together, of AUROCs that are worked out by hand."""

import numpy as np
import pytest

from fedmed.errors import JobError
from research.runner.judgement import claims_markdown, judge
from research.runner.score_table import joined, score_frame
from research.runner.table_claim import Evidence, read_claims

from .conftest import IMAGES, predictions

ROOM = "research.runner.patient_targets"
KINDS = {"auroc": IMAGES["auroc"]}
NORTH = {"task": "north", "list": "internal", "protocol": "labels of north"}
SOUTH = {"task": "south", "list": "external", "protocol": "labels of north"}
BACK = {"task": "north", "list": "external", "protocol": "labels of south"}


def ranked(arm, seed, below, **where):
    """Ten ill images above ten normal ones, but for one ill image below so many: an AUROC of 1 - below / 100."""
    ill = np.array([10.5 - below, *range(11, 20)]) / 20
    p = np.concatenate([ill, np.arange(1, 11) / 20])
    rows = {
        "unit": [f"image_{i}" for i in range(20)] * 2,
        "metric": ["p_ill"] * 20 + ["p_normal"] * 20,
        "value": [*p, *(1 - p)],
        "label": (["ill"] * 10 + ["normal"] * 10) * 2,
    }
    return score_frame(rows, arm=arm, seed=seed, site="s", model="last", **{**SOUTH, **where})


def judged(kind, frames, **settings):
    content = {"id": 1, "text": "t", "path": f"{ROOM}.{kind}", "arm": "new", "at": ["external"], **settings}
    claims = read_claims([content], None, {"arm": ["new", "silent", "left out"], "score": ["auroc"]})
    return judge(claims, Evidence(joined(frames), KINDS, {}))[0]


def arms(**below):
    return [ranked(arm.replace("_", " "), seed, k) for arm, seeds in below.items() for seed, k in enumerate(seeds)]


def noisy(at=SOUTH, **errors):
    return [predictions(arm.replace("_", " "), seed, error, **at) for arm, error in errors.items() for seed in range(3)]


def test_a_gain_is_over_the_better_control():
    frames = arms(new=[1, 1, 1], silent=[4, 4, 4], left_out=[6, 6, 6])
    (finding,) = judged("PatientGain", frames, over=["left out", "silent"], at_least=0.02).findings
    cells = dict(finding.cells)
    assert (cells["than"], cells["difference"], cells["wanted"]) == ("silent", "+0.030", "+0.020")
    assert (cells["task"], cells["setting"]) == ("south", "labels of north")


def test_a_clear_gain_holds_a_loss_does_not_and_too_little_is_open():
    good = noisy(new=0.5, silent=4.0, left_out=4.5)
    wanted = {"over": ["left out", "silent"]}
    one = judged("PatientGain", good, at_least=0.02, **wanted)
    assert one.verdict == "✓" and one.findings[0].p_holm < 0.05
    assert judged("PatientGain", good, at_least=0.9, **wanted).verdict == "n.s."
    assert judged("PatientGain", noisy(new=4.0, silent=0.5, left_out=4.5), at_least=0.02, **wanted).verdict == "✗"
    assert "jackknife over the test list's patients" in claims_markdown("T", [one], KINDS)


def test_a_gain_must_be_there_at_every_hospital_and_in_every_turn():
    there, back = noisy(new=0.5, silent=4.0), noisy(at=BACK, new=4.0, silent=0.5)
    wanted = {"over": ["silent"], "at_least": 0.02}
    assert judged("PatientGain", there, **wanted).verdict == "✓"
    both = judged("PatientGain", [*there, *back], **wanted)
    assert [str(each.outcome) for each in both.findings] == ["✓", "✗"] and both.verdict == "✗"


def test_not_lower_in_the_mean_or_in_every_seed():
    frames = arms(new=[2, 0, 0], silent=[0, 0, 0])
    wanted = {"than": ["silent"], "margin": 0.01}
    assert judged("PatientNotLower", frames, **wanted).verdict == "✓", "-0.0067 in the mean"
    worst = judged("PatientNotLower", frames, in_every_seed=True, **wanted)
    assert worst.verdict == "✗" and worst.findings[0].p is None
    cells = dict(worst.findings[0].cells)
    assert (cells["difference"], cells["worst seed"], cells["limit"]) == ("−0.007", "−0.020", "−0.010, in every seed")
    assert cells["95 %"].startswith("−0.0") and " to " in cells["95 %"]


def test_hospitals_are_told_apart_by_whose_labels_are_learned():
    frames = [ranked(arm, 0, below, **at) for at in (NORTH, SOUTH) for arm, below in (("new", 2), ("silent", 0))]
    for at, tasks in (("internal", {"north"}), ("external", {"south"}), ("internal external", {"north", "south"})):
        findings = judged("PatientNotLower", frames, than=["silent"], margin=0.01, at=at.split()).findings
        assert {dict(each.cells)["task"] for each in findings} == tasks and len(findings) == len(tasks)


def test_the_selected_model_is_not_judged_and_an_arm_that_was_not_run_is_said():
    chosen = [frame.assign(model="selected") for frame in arms(new=[9], silent=[0])]
    frames = [*arms(new=[0], silent=[0]), *chosen]
    assert judged("PatientNotLower", frames, than=["silent"], margin=0.01).verdict == "✓"
    assert judged("PatientNotLower", frames, than=["left out"], margin=0.01).verdict == "not run"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"over": ["new"]}, "'new' is compared with itself"),
        ({"at": ["elsewhere"]}, "elsewhere"),
        ({"at": []}, "'at'"),
        ({"over": ["gone"]}, "'gone' is not an arm"),
        ({"score": "dice"}, "'dice' is not a score"),
    ],
)
def test_wrong_targets_are_named_before_anything_runs(change, words):
    with pytest.raises(JobError, match=f"claim 1: .*{words}"):
        judged("PatientGain", [], **{"over": ["silent"], "at_least": 0.02, **change})
