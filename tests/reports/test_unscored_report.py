"""A run without labels: losses, contrastive accuracy, what changed, who weighed how much, and what comes next."""

import json

import numpy as np
import pytest

from fedmed.reports import training_scalars
from fedmed.reports.live import Follower, render
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page, write_report
from fedmed.reports.run_report import report_of
from fedmed.reports.unscored_report import learner_rows
from fedmed.systems.fedmoco import report as representation_section
from fedmed.systems.fedmoco.method import FedMoCo
from fedmed.systems.fedmoco.report import exchange_note
from tests.reports.records import AUROC, change, change_rounds, shown

SITES = ("cxr_children", "cxr_metro", "cxr_rural")
IMAGES = {"cxr_children": 400, "cxr_metro": 1200, "cxr_rural": 800}
JOB = "simulate_job/fedmed"


def rounds_of(rounds, from_round, rng):
    """Lines of rounds.jsonl: losses fall, the representation settles, the weights come nearer each other."""
    lines = []
    for index in range(rounds):
        progress = 1 - np.exp(-3 * index / max(rounds - 1, 1))
        numbers, extras = {}, {}
        for place, name in enumerate(SITES):
            numbers[name] = {
                "n_steps": IMAGES[name] // 32,
                "n_samples": IMAGES[name],
                "train_loss": 5.4 - 2.2 * progress + 0.15 * place + rng.normal(0, 0.04),
                "train_contrastive_accuracy": 0.05 + (0.7 - 0.05 * place) * progress,
            }
            extras[name] = {"rsa": 1 - (0.5 - 0.1 * place) * (1.05 - progress) * rng.uniform(0.8, 1.1)}
            if index >= from_round:
                extras[name] |= {} if name == "cxr_children" else {"n": IMAGES[name]}
                numbers[name]["train_clamped_fraction"] = 0.02 + 0.01 * place
        gaps = {name: 1 - values["rsa"] for name, values in extras.items()}
        shares = {name: gap / sum(gaps.values()) for name, gap in gaps.items()}
        line = {"round": index, "accepted": list(SITES), "coefficients": shares, "sites": numbers, "extras": extras}
        moved = {"seconds": 7.5, "bytes_down": 3_300_000, "bytes_up": 3_300_000}
        lines.append({**line, **moved, "score": None, "bytes_extras": 12 + (6_500 if index >= from_round else 0)})
    return lines


def keep_model(server):
    """The server's file of the last aggregate, empty."""
    (server / "app_server").mkdir(parents=True)
    (server / "app_server" / "FL_global_model.pt").touch()


def make_run(root, rounds=4, done=None, from_round=2):
    """Write a run of contrastive pre-training."""
    rng, server = np.random.default_rng(5), root / "server" / JOB
    server.mkdir(parents=True)
    method = FedMoCo(exchange_from=from_round).spec()
    facts = {
        "job": "cxr_fedmoco",
        "bundle": "cxr_classification",
        "overlays": ["demo", "pretrain"],
        "seed": 0,
        "rounds": rounds,
        "score": AUROC,
        "kind": "encoder",
        "sites": {name: {"role": "unsupervised", "weight": 1.0} for name in SITES},
        "config": {"study": {"epochs": 1.0, "select": "last", "evaluate": False, "method": method}},
        "started": "2026-11-21T09:05:00+00:00",
    }
    (server / "run.json").write_text(json.dumps(facts))
    lines = rounds_of(rounds, from_round, rng)[:done]
    (server / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in SITES:
        (root / name / JOB).mkdir(parents=True)
    if len(lines) == rounds:
        keep_model(server.parent)
        result = {"best_round": None, "best_score": None, "last_score": None, "test": {}, "selected_by": []}
        (server / "result.json").write_text(json.dumps({**result, "seconds_total": 8.0 * rounds}))
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One finished run that tests only read."""
    return read_run(make_run(tmp_path_factory.mktemp("pretraining") / "run"))


@pytest.fixture(scope="module")
def written(run, tmp_path_factory):
    return write_report(run.folder, tmp_path_factory.mktemp("report"))


def test_the_page_tells_losses_changes_and_weights_and_no_score(written):
    html = written.html.read_text()
    for words in (
        "Contrastive accuracy",
        "Representation kept in a round, r",
        "Weight in the aggregate",
        "no site has tested it",
        "No summary came from cxr_children.",
        "6.5 kB a round, both ways",
    ):
        assert words in html.replace("&#39;", "'"), words
    for words in ("Dice", "validation", "Validation", "not tested", "Result at each site", "pictures"):
        assert words not in html
    assert {path.name for path in written.pngs} == {"curves.png", "aggregation.png", "traffic.png"}


def test_what_comes_next_is_of_the_user_s_own_study(written):
    html = written.html.read_text().replace("&#39;", "'").replace("&gt;", ">")
    assert "fedmed study init linear > cxr_fedmoco_linear.yaml" in html
    assert "--set 'sites={cxr_children: supervised, cxr_metro: supervised, cxr_rural: supervised}'" in html
    assert "--set 'overlays=[demo]'" in html and "fedmed simulate jobs/cxr_fedmoco_fine_tuning" in html
    assert "jobs/cxr_linear" not in html


def test_the_sentence_tells_how_far_the_loss_fell(run):
    first, last = (np.mean([v["train_loss"] for v in run.rounds[i].sites.values()]) for i in (0, -1))
    text = report_of(run).summary(run)
    assert text.startswith(f"After 4 rounds with 3 sites, the mean loss went from {first:.2f} to {last:.2f}")
    facts = dict(report_of(run).facts(run))
    assert facts["mean loss"] == f"{last:.3f}" and "selected" not in facts


def test_rows_hold_the_last_round(run):
    row, last = learner_rows(run, training_scalars.reported(run))[1], run.rounds[-1]
    assert (row["site"], row["images"], row["r"]) == ("cxr_metro", "1200", f"{last.extras['cxr_metro']['rsa']:.3f}")
    assert (row["weight"], row["clamped synthetic values"]) == (f"{last.coefficients['cxr_metro']:.3f}", "0.030")
    assert "images without a feature" not in row  # which no site reported
    text = shown(report_of(run).table(run))
    assert "contrastive" in text and "→" in text and max(map(len, text.splitlines())) <= 80


def test_changes_and_contrastive_accuracy_count_rounds_from_one(run):
    for points in (representation_section.changes(run), training_scalars.points(run, "train_contrastive_accuracy")):
        assert [x for x, _ in points["cxr_rural"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupted_run_has_a_page_too(tmp_path, done):
    run = read_run(make_run(tmp_path / "run", done=done))
    html = page(run)
    assert "did not reach its end" in html and "What to do next" not in html
    assert report_of(run).summary(run).startswith(f"This run has finished {done} of 4 rounds with 3 sites")
    assert "has not come so far" in exchange_note(run)


def test_without_numbers_of_it_the_page_has_no_representation(tmp_path):
    folder = make_run(tmp_path / "run", rounds=2, from_round=1)
    change_rounds(folder, lambda *_: {"extras": {}})
    html = page(read_run(folder))
    assert "Representation kept" not in html and "The area of a disc" in html
    assert "synthetic" in html


def test_of_a_run_whose_method_is_not_recorded_the_loss_and_the_weights_are_left(tmp_path):
    folder = make_run(tmp_path / "run", rounds=2)
    change(folder, "run", config={"study": {"epochs": 1.0, "select": "last", "evaluate": False}})
    run = read_run(folder)
    heads = {"site", "images", "loss, first → last round", "weight"}
    assert set(learner_rows(run, training_scalars.reported(run))[0]) == heads
    html = page(run)
    assert "The area of a disc" in html and "What to do next" not in html and "ontrastive" not in html


def test_the_display_has_contrastive_accuracy_and_no_empty_column_for_a_score(tmp_path):
    follower = Follower(tmp_path, "cxr_fedmoco", ["cxr_metro"])
    assert "score" in shown(render(follower.state, 0.0))  # not yet known
    folder = tmp_path / "server" / JOB
    folder.mkdir(parents=True)
    study = {"select": "last", "evaluate": False, "method": FedMoCo().spec()}
    (folder / "run.json").write_text(json.dumps({"score": AUROC, "rounds": 5, "config": {"study": study}}))
    site = tmp_path / "cxr_metro" / JOB
    site.mkdir(parents=True)
    event = {"task": "train", "round": 0, "total_rounds": 5}
    step = {"event": "step", "step": 3, "steps": 10, "loss": 4.5, "contrastive_accuracy": 0.25, **event}
    end = {"event": "end", "train_loss": 4.25, "train_contrastive_accuracy": 0.5, **event}
    (site / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (step, end)))
    assert "loss 4.2500 contrastive accuracy 0.5000" in follower.poll()[0]
    text = shown(render(follower.state, follower.state.started + 3))
    assert "0.500" in text and "contrastive" in text and "score" not in text and "AUROC" not in text
