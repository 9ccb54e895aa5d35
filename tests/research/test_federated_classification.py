"""Classifiers of a federation in a table: whose images are units of which list, and their AUROC."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from fedmed.errors import JobError
from research.runner.experiment_data import load_data, stage_job
from research.runner.federated_classification import ClassificationStep, FederatedClassification
from research.runner.federation_data import FederationData
from research.runner.job_scores import RUN
from research.runner.patient_claims import BetterByPatients
from research.runner.patient_scores import PatientScores, Setting
from research.runner.score_kinds import AurocOfClasses
from research.runner.score_table import joined
from research.runner.stages import Place
from research.runner.table_claim import Evidence
from research.runner.yaml_models import build
from tests.commands import fedmed

CHECKOUT = Path(__file__).resolve().parents[2]
ROOM = "research.runner"
METHOD = {"method": {"path": "fedmed.systems.agreement.method.Agreement"}}
TRAIN = {"labelled": "supervised", "others": "unsupervised"}
AUROC = {"auroc": AurocOfClasses(label="AUROC", unit="image")}
LABELS = {"north": ("normal", "bacteria", "virus"), "south": ("clear", "ill", "clear")}
PRIVACY = {"allowed_extras": ["agreed_share", "label_confidence", "label_shares", "intensity_shares", "mean_scores"]}
CLASSES = {
    "north": {"normal": ["normal"], "ill": ["bacteria", "virus"]},
    "south": {"normal": ["clear"], "ill": ["ill"]},
}
SMALL = {"batch_size": 4, "image_size": 32}
DATA = {
    "path": f"{ROOM}.hospitals_in_turn.HospitalsInTurn",
    "root": "nowhere",
    "hospitals": {name: {"folder": name, "classes": classes} for name, classes in CLASSES.items()},
    "privacy": PRIVACY,
    "bundle": "cxr_classification",
    "networks": {"default": ["demo"]},
    "budget": {"steps": 2, "warm_start": 1, "interval": 1, "validate": 1},
    "overrides": {role: SMALL for role in ("supervised", "unsupervised", "evaluate")},
    "job": {"classes": ["normal", "ill"], "method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}},
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two hospitals of 36 synthetic images: a third of the patients have two; and the folder of the YAML."""
    monkeypatch.setenv("FEDMED_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(0)
    for name, labels in LABELS.items():
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        rows = [f"{i}.png,{labels[i % 3]},p{i % 27}" for i in range(36)]
        for i in range(36):
            Image.fromarray(generator.integers(0, 255, (32, 32), dtype=np.uint8)).save(folder / f"{i}.png")
        (folder / "labels.csv").write_text("\n".join(["file,label,patient", *rows]) + "\n")
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(DATA))
    return tmp_path


def finished(folder, labelled="a"):
    """A step of a finished job: two sites of four images, of which only their files are there."""
    probabilities = {"a": (0.9, 0.2, 0.6, 0.4), "b": (0.1, 0.2, 0.3, 0.4)}
    labels, result = ("ill", "normal", "normal", "ill"), {"validation": {"a": 0.5}, "validation_last": {"a": 0.5}}
    for test, at in (("test", "evaluation"), ("test_last", "evaluation_last")):
        result[test] = {site: {"n_cases": 4, "auroc": 0.5} for site in probabilities}
        for site, ill in probabilities.items():
            (folder / site / RUN / at).mkdir(parents=True)
            rows = [f"{n}.png,{label},{1 - p},{p}" for n, (label, p) in enumerate(zip(labels, ill, strict=True))]
            cases = "\n".join(["case,label,p_normal,p_ill", *rows])
            (folder / site / RUN / at / "cases.csv").write_text(cases + "\n")
    (folder / "server" / RUN).mkdir(parents=True)
    (folder / "server" / RUN / "result.json").write_text(json.dumps(result))
    given = {"bundle": "cxr_classification", **DATA["job"]}
    job = stage_job("arm", given, name="arm", sites={"a": "supervised", "b": "evaluate"}, rounds=1, steps=1, seed=10)
    return ClassificationStep(job, {}, folder, labelled=labelled)


def test_scores_of_a_finished_job_give_the_auroc_of_each_site(tmp_path):
    """By hand: of four pairs of an ill and a normal image the ill one is higher in three at a, in two at b."""
    rows = finished(tmp_path).scores()
    assert set(rows["list"]) == {"internal", "external"}, "no mean over a validation list: it has no images"
    labels = rows[rows["unit"] == "0.png"].groupby("metric")["label"].unique().map(list)
    assert dict(labels) == {"p_ill": ["ill"], "p_normal": ["ill"]}
    scores = PatientScores(joined([rows.assign(arm="x")]), AUROC)
    at = [Setting(site, kind, "labels of a", 1.0, "last") for site, kind in (("a", "internal"), ("b", "external"))]
    assert [scores.left_out("x", one, "auroc")[10][0] for one in at] == [0.75, 0.5]
    assert {one.model for one in scores.settings()} == {"last", "selected"}


def test_two_arms_are_compared_over_patients(tmp_path):
    at = {"protocol": "labels of a", "fractions": [1], "tasks": ["b"], "list": "external"}
    claim = BetterByPatients(id=1, text="t", holds=[{"better": "x", "worse": "y", **at}])
    rows = finished(tmp_path).scores()
    worse = rows.assign(arm="y", value=np.where(rows["metric"] == "p_ill", rows["label"] == "normal", 0.5))
    (one,) = claim.findings(Evidence(joined([rows.assign(arm="x"), worse]), AUROC, {}))
    # 0.5, and of the other arm 0 for the ill and 0.5 for the normal, whose numbers are all alike.
    assert one.seeds == (0.25,)


def test_which_list_an_image_is_of_depends_on_whose_labels_are_learned(tmp_path):
    rows = finished(tmp_path, labelled="b").scores()
    assert set(rows[rows["site"] == "b"]["list"]) == {"internal"}
    assert set(rows["protocol"]) == {"labels of b"} and set(rows[rows["task"] == "a"]["list"]) == {"external"}


def test_a_job_that_is_not_scored_has_no_units(tmp_path):
    step = finished(tmp_path)
    silent = replace(step.job, study=step.job.study.model_copy(update={"evaluate": False}))
    assert replace(step, job=silent).scores() is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"others": "supervised"}}, "'train' must have a role for 'labelled', may have one for 'others'"),
        ({"leave_one_out": True}, "'train' must have a role for 'labelled', may have one for 'others'"),
        ({"train": {}, "centralised": ["labelled"]}, "'centralised' must be .labelled, others.: all sites"),
    ],
)
def test_other_ways_to_train_are_refused(change, said):
    with pytest.raises(JobError, match=said):
        build(FederatedClassification, {"train": TRAIN, **change}, "arm 'a'")


def test_a_federation_needs_a_site_called_labelled():
    settings = {"name": "x", "bundle": "cxr_classification", "networks": {"default": []}, "budget": DATA["budget"]}
    stage = FederatedClassification(train=TRAIN)
    assert stage.lacking(FederationData(sites={"site_1": "a"}, **settings)) == "the site 'labelled'"
    assert stage.lacking(FederationData(sites={"labelled": "a", "x": "b", "y": "c"}, **settings)) is None


def test_every_hospital_is_once_the_one_with_labels_and_all_are_tested(data):
    place = Place("a", 0, load_data(data / "two.yaml"), [], data / "out")
    one, two = FederatedClassification(train=TRAIN, job=METHOD).steps(place, None)
    assert (one.labelled, two.labelled) == ("north", "south") and one.path != two.path
    assert dict(one.job.study.sites) == {"north": "supervised", "south": "unsupervised"}
    assert dict(two.job.study.sites) == {"north": "unsupervised", "south": "supervised"}
    without = json.loads(one.sites["south"].datalist.read_text())
    assert set(without) == {"unlabeled", "testing"} and not any("label" in entry for entry in without["unlabeled"])
    left_out = FederatedClassification(train=TRAIN, control="left_out").steps(place, None)
    assert [step.job.study.sites["south"] for step in left_out] == ["evaluate", "supervised"]
    alone = FederatedClassification(train={"labelled": "supervised"}).steps(place, None)
    assert [step.path for step in alone] == [step.path for step in left_out]
    same = FederatedClassification(train=dict.fromkeys(TRAIN, "supervised")).steps(place, None)
    assert same[0].path == same[1].path, "with labels at all, both turns are one run"
    pooled, again = FederatedClassification(centralised=["labelled", "others"]).steps(place, None)
    assert dict(pooled.job.study.sites) == {"pool": "supervised", "north": "evaluate", "south": "evaluate"}
    images = {
        site: json.loads(step.sites[site].datalist.read_text())["training"]
        for step, site in ((pooled, "pool"), (same[0], "north"), (same[0], "south"))
    }
    assert len(images["pool"]) == len(images["north"]) + len(images["south"])
    assert again.labelled == "south"


def test_a_table_from_end_to_end(data, in_this_process, capsys, monkeypatch):
    """Two hospitals in turn, two arms of two steps."""
    table = yaml.safe_load((CHECKOUT / "research/experiments/agreement_xray.yaml").read_text())
    (data / "t.yaml").write_text(yaml.safe_dump(table, sort_keys=False))
    wanted = ["--arms", "left out,agreement", "--seeds", "10", "--out", str(data / "out")]
    command = [str(data / "t.yaml"), "--data", str(data / "two.yaml"), *wanted]
    main = fedmed("research", "run")
    assert main(command) == 0
    folder = data / "out" / "two" / "t"
    rows = list(csv.DictReader((folder / "models.csv").open()))
    assert len(rows) == 2 * 2 * 2 * 2, "arms, turns, hospitals, models"
    assert {row["protocol"] for row in rows} == {"labels of north", "labels of south"}
    images = pd.read_csv(folder / "scores.csv")
    assert set(images["metric"]) == {"p_normal", "p_ill"} and images.groupby("task")["patient"].nunique().min() > 10
    text = (folder / "table.md").read_text()
    assert "## labels of north: AUROC, model of the last round" in text and "| north, with labels |" in text
    assert "| gain | Agreement gains" in (folder / "claims.md").read_text()
    monkeypatch.setattr("research.runner.share_columns.png", lambda figure: b"drawn above")
    capsys.readouterr()
    assert main([*command, "--arms", "agreement"]) == 0
    assert "2 runs, 0 of them shared, 2 finished before" in capsys.readouterr().out
