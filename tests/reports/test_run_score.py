"""Score by which a run is reported, and the kind of page that makes."""

import json

import pytest

from fedmed.errors import BundleError
from fedmed.reports.live import Follower
from fedmed.reports.run import read_run, score_of
from fedmed.reports.run_report import report_of
from tests.reports.records import AUROC, change

JOB = "simulate_job/fedmed"
UNSCORED = {"study": {"select": "last", "evaluate": False}}


def with_facts(folder, **facts):
    change(folder, "run", **facts)
    return read_run(folder)


def test_runs_of_an_earlier_fedmed_are_scored_by_dice_under_its_old_name(fake_run):
    folder = fake_run(rounds=2)
    path = folder / "ct_north" / JOB / "progress.jsonl"
    path.write_text(path.read_text().replace('"score"', '"dice"'))
    run = read_run(folder)
    assert (run.score.label, run.score.validation, run.score.test) == ("Dice", "val_dice", "dice_mean")
    assert run.sites[0].closing_score == pytest.approx(0.79)


def test_a_score_needs_no_more_than_a_name_and_may_say_what_is_not_known_here():
    score = score_of({"score": {"name": "f1", "colour": "red"}})
    assert (score.label, score.test, score.validation, score.low) == ("f1", "f1", "val_f1", None)
    assert score_of({"score": AUROC}).high == "auroc_high"


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, "SegmentationReport"),  # of an earlier FedMed: the kind of the bundle that is installed
        ({"kind": "segmentation_3d"}, "SegmentationReport"),
        ({"kind": "classification"}, "ClassificationReport"),
        ({"kind": "classification", "config": {"study": {"select": "last"}}}, "ClassificationReport"),
        ({"kind": "fedmed.kinds.encoder.Encoder"}, "UnscoredReport"),
        ({"kind": "classification", "config": UNSCORED}, "UnscoredReport"),
        ({"config": UNSCORED}, "UnscoredReport"),
        ({"kind": "encoder", "config": UNSCORED}, "UnscoredReport"),
    ],
)
def test_the_kind_says_what_reports_a_run(fake_run, facts, kind):
    assert type(report_of(with_facts(fake_run(rounds=1), **facts))).__name__ == kind


@pytest.mark.parametrize("kind", ["clasification", "fedmed.reports.run.Run", "no.such.Kind"])
def test_an_unknown_kind_is_told_with_the_run(fake_run, kind):
    run = with_facts(fake_run(rounds=1), kind=kind)
    with pytest.raises(BundleError, match=f"{run.folder}: 'kind' in run.json is '{kind}'"):
        report_of(run)


def test_lines_and_display_take_the_label_as_soon_as_the_run_tells_it(tmp_path):
    server, site = tmp_path / "server" / JOB, tmp_path / "a" / JOB
    server.mkdir(parents=True)
    site.mkdir(parents=True)
    (server / "run.json").write_text(json.dumps({"score": {"name": "old", "label": "Old"}}))  # of an earlier run
    follower = Follower(tmp_path, "job", ["a"])
    line = json.dumps({"event": "validated", "task": "train", "round": 0, "score": 0.5}) + "\n"
    (site / "progress.jsonl").write_text(line)
    assert follower.poll()[0].endswith("received model score 0.5000")
    (server / "run.json").unlink()
    (server / "run.json").write_text(json.dumps({"score": AUROC, "rounds": 7}))
    (site / "progress.jsonl").write_text(line * 2)
    assert follower.poll()[0].endswith("received model AUROC 0.5000")
    assert (follower.state.label, follower.state.total_rounds, follower.state.validated) == ("AUROC", 7, True)
