"""Files of a table, all made from its results."""

import csv
import json
from dataclasses import replace

import pytest

from fedmed.errors import DataError
from fedmed.experiments.pretraining.arms import Arm, Protocol, Table
from fedmed.experiments.pretraining.dynamics import read_history
from fedmed.experiments.pretraining.outputs import write_outputs
from fedmed.experiments.pretraining.scores import Result, Scores

from .conftest import SETTING, probabilities

CLAIM = {
    "id": 1,
    "text": "good is better",
    "holds": [{"better": "good", "worse": "bad", "protocol": "linear", "fractions": [1]}],
}
TABLE = Table(
    "t",
    "T",
    [0, 1, 2],
    [Arm("good", "fedmoco", group="G"), Arm("bad", "random")],
    [Protocol("linear", [0.1, 1])],
    claims=[CLAIM],
)
SETTINGS = [
    replace(SETTING, test=test, fraction=f, protocol=protocol, model=model)
    for test in ("internal", "external")
    for f in (0.1, 1.0)
    for protocol, model in (("linear", "last"), ("finetune", "last"), ("finetune", "highest"))
]


def test_all_files_are_written_and_say_what_they_show(tmp_path, make_scores):
    scores = make_scores({"good": 0.5, "bad": 4}, SETTINGS, draws=("0", "1"))
    written = write_outputs(tmp_path, TABLE, "demo", scores, {})
    assert [p.name for p in written] == ["scores.csv", "table.csv", "table.md", "figure.png", "claims.md"]
    text = (tmp_path / "table.md").read_text()
    assert "# T (demo)" in text and "| *G* |" in text and "| 10 % of the labels | 100 % of the labels |" in text
    assert "too high" in text and "tested at the other hospital: AUROC" in text
    assert "tested at the other hospital: accuracy" not in text
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert len(rows) == 2 * 3 * 2 * len(SETTINGS)
    assert all(float(r["auroc_low"]) <= float(r["auroc"]) <= float(r["auroc_high"]) for r in rows)
    means = list(csv.DictReader((tmp_path / "table.csv").open()))
    first = next(r for r in means if r["arm"] == "good" and r["metric"] == "accuracy")
    key = ("task", "test", "protocol", "fraction", "model")
    own = [float(r["accuracy"]) for r in rows if r["arm"] == "good" and all(r[k] == first[k] for k in key)]
    assert len(own) == 6 and float(first["mean"]) == pytest.approx(sum(own) / 6)
    assert "| 1 | good is better | ✓ |" in (tmp_path / "claims.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 20_000


def test_what_other_arms_left_does_not_stay(tmp_path, make_scores):
    write_outputs(tmp_path, TABLE, "demo", make_scores({"good": 0.5, "bad": 4}), {})
    (tmp_path / "notes.txt").touch()
    table = replace(TABLE, claims=(), figure=["bad"])
    written = write_outputs(tmp_path, table, "demo", make_scores({"good": 0.5}), {})
    assert {p.name for p in written} == {"scores.csv", "table.csv", "table.md"}
    assert {p.name for p in tmp_path.iterdir()} == {"scores.csv", "table.csv", "table.md", "notes.txt"}


def test_one_classifier_counts_once(truth):
    twice = [Result("good", 0, SETTING, "0", probabilities(1, 1))] * 2
    with pytest.raises(DataError, match="there twice"):
        Scores(twice, {("lungs", "internal"): truth})


def test_rounds_are_read_in_the_order_of_the_nodes(tmp_path):
    path = tmp_path / "a" / "b" / "c" / "rounds.jsonl"
    path.parent.mkdir(parents=True)
    line = {"coefficients": {"b": 0.25, "a": 0.75}, "extras": {"a": {"rsa": 0.9}, "b": {"rsa": 0.7}}}
    failed = {"coefficients": {}, "extras": {}}
    path.write_text("\n".join(map(json.dumps, [line, failed, line])))
    found = read_history(path, {"b": 10, "a": 30})
    assert found.weights.tolist() == [[0.25, 0.75]] * 2 and found.rsa.tolist() == [[0.7, 0.9]] * 2
    path.write_text(json.dumps({"coefficients": {"a": 1, "b": 0}}))
    assert read_history(path, {"b": 10, "a": 30}).rsa is None
    path.write_text("{")
    with pytest.raises(DataError, match="remove"):
        read_history(path, {"a": 1})
