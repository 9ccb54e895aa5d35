"""Hospitals in folders: lists by patient, classes of several labels, and what is refused."""

import json

import pytest

from fedmed.errors import DataError, JobError
from research.runner.hospitals_in_turn import HospitalsInTurn
from research.runner.yaml_models import build

from .shipped_tables import data_of

FOLDERS = {
    "north": {"folder": "a", "classes": {"normal": ["normal"], "ill": ["bacteria", "virus"]}},
    "south": {"folder": "b", "classes": {"normal": ["clear"], "ill": ["ill"]}},
}
VALUES = {
    "name": "two",
    "bundle": "cxr_classification",
    "root": "nowhere",
    "networks": {"default": ["demo"]},
    "budget": {"steps": 2, "warm_start": 1, "interval": 1, "validate": 1},
    "hospitals": FOLDERS,
}


def south(classes):
    return {"hospitals": {**FOLDERS, "south": {"folder": "b", "classes": classes}}}


def hospitals(**change):
    return build(HospitalsInTurn, {**VALUES, **change}, "two.yaml")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The first hospital: 60 patients with one to three images, every tenth of a disease that is no class."""
    monkeypatch.setenv("FEDMED_DATA", str(tmp_path))
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "home"))
    labels = ["normal", "virus", "bacteria", "normal", "virus", "normal", "normal", "virus", "normal", "covid"]
    rows = [f"{p}_{n}.png,{labels[p % 10]},p{p}" for p in range(60) for n in range(1 + p % 3)]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "labels.csv").write_text("\n".join(["file,label,patient", *rows]) + "\n")
    return tmp_path / "a"


def test_no_patient_is_in_two_lists_and_labels_become_classes(folder):
    config = hospitals().settings_of("north")
    lists = json.loads(config.datalist.read_text())
    patients = [{entry["patient"] for entry in lists[name]} for name in ("training", "validation", "testing")]
    assert len(set.union(*patients)) == sum(map(len, patients)) == 54, "six patients are of no class"
    assert all({entry["label"] for entry in of_list} == {"normal", "ill"} for of_list in lists.values())
    everyone = sum(map(len, lists.values()))
    assert abs(len(lists["testing"]) - everyone / 2) <= 2 and abs(len(lists["validation"]) - everyone / 10) <= 3
    assert config.data_root == folder and config.threads == 1
    assert {f"{entry['image'].split('_')[0]}" for entry in lists["training"]} == {p[1:] for p in patients[0]}


def test_lists_depend_on_names_alone(folder):
    first = hospitals().settings_of("north").datalist.read_bytes()
    head, *rows = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join([head, *rows[::-1]]) + "\n")
    again = json.loads(hospitals().settings_of("north").datalist.read_text())
    for name, entries in json.loads(first).items():
        assert {entry["image"] for entry in entries} == {entry["image"] for entry in again[name]}


def test_each_hospital_has_the_labels_once():
    turns = hospitals().turns()
    one, other = {"labelled": "north", "south": "south"}, {"labelled": "south", "north": "north"}
    assert [turn.sites for turn in turns] == [one, other]
    assert hospitals().sites == turns[0].sites


def test_data_that_is_not_there_or_too_little_is_said(folder):
    with pytest.raises(JobError, match="X-rays of 'south' are not there: .*b is not a folder; point FEDMED_DATA"):
        hospitals().settings_of("south")
    rows = [f"{n}.png,{label},p{n}" for n, label in enumerate(["normal"] * 9 + ["virus"])]
    (folder / "labels.csv").write_text("\n".join(["file,label,patient", *rows]) + "\n")
    with pytest.raises(DataError, match=r"no image of 'ill' \(labels: bacteria, virus\) is left for"):
        hospitals().settings_of("north")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sites": {"labelled": "north"}}, "'sites' is made of 'hospitals'"),
        ({"hospitals": {"north": FOLDERS["north"]}}, "hospitals"),
        ({"job": {"classes": ["normal", "covid"]}}, "'hospitals: north' has the classes ill, normal; .*its scanner"),
        (south({"normal": ["clear"], "covid": ["ill"]}), "'hospitals: south' has the classes covid, normal"),
        (south({"normal": ["x"], "ill": ["x"]}), "label 'x' in two classes"),
    ],
)
def test_wrong_hospitals_are_named(change, words):
    with pytest.raises(JobError, match=words):
        hospitals(**change)


def test_the_real_x_rays_ask_what_both_hospitals_can_answer():
    data = data_of("cxr_agreement_real")
    classes = {name: set(hospital.classes) for name, hospital in data.hospitals.items()}
    assert classes == {"kermany": {"normal", "pneumonia"}, "nih": {"normal", "pneumonia"}} and len(data.turns()) == 2
    assert set(data.hospitals["kermany"].classes["pneumonia"]) == {"bacteria", "virus"}
