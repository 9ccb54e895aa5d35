"""Descriptions of data, above all of a task in which class means hospital, and splits that keep patients together."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
import yaml

from fedmed.errors import DataError, JobError
from research.runner.encoder_training import EncoderTraining
from research.runner.experiment_data import load_data
from research.runner.hospital_images import ImageCase, halves, share

BASE = {
    "path": "research.runner.hospital_data.HospitalData",
    "bundle": "cxr_classification",
    "privacy": {"allowed_extras": ["rsa", "mu"], "extras_min_images": 2},
    "root": "nowhere",
    "sites": {name: {"folder": name, "table": "labels.csv"} for name in ("north", "south", "west")},
    "healthy": {"north": ["normal"], "south": ["clear"]},
    "tasks": {
        "north": {
            "site": "north",
            "classes": ["normal", "bacteria", "virus"],
            "external": {"site": "south", "ours": ["bacteria", "virus"], "theirs": ["ill"]},
        }
    },
    "budget": {"rounds": 4, "warm_up": 1},
}
LABELS = {"north": ["normal", "bacteria", "virus"], "south": ["clear", "ill"], "west": ["covid"]}


@pytest.fixture
def describe(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_DATA", str(tmp_path / "data"))
    for name, labels in LABELS.items():
        (tmp_path / "data" / name).mkdir(parents=True)
        rows = [f"{i}.png,{labels[i % len(labels)]},p{i // 2}" for i in range(24)]
        (tmp_path / "data" / name / "labels.csv").write_text("\n".join(["file,label,patient", *rows]) + "\n")

    def make(**changes):
        path = tmp_path / "data.yaml"
        path.write_text(yaml.safe_dump({**BASE, **changes}))
        return load_data(path)

    return make


def nodes_of(description, **settings):
    return EncoderTraining(**settings).node_cases(description, "a")


def test_hospitals_without_a_test_learn_from_all_their_images(describe):
    hospitals = describe().hospitals
    assert list(hospitals) == ["north", "south", "west"] and not hospitals["west"].testing
    for name in ("north", "south"):
        sides = [{c.patient for c in side} for side in (hospitals[name].training, hospitals[name].testing)]
        assert not sides[0] & sides[1] and abs(len(sides[0]) - len(sides[1])) <= 2
    assert hospitals["north"].config.privacy.allowed_extras == ("rsa", "mu")


def test_nodes_learn_from_training_images_alone(describe):
    description = describe()
    nodes = nodes_of(description, split=2)
    assert list(nodes) == ["north_1", "north_2", "south_1", "south_2", "west_1", "west_2"]
    one, other = ({c.patient for c in nodes[name]} for name in ("north_1", "north_2"))
    assert one and other and not one & other
    assert one | other == {c.patient for c in description.hospitals["north"].training}


def test_sizes_and_skews_follow_the_order_of_the_sites(describe):
    description = describe()
    hospitals = description.hospitals
    nodes = nodes_of(description, sizes=[1, 0.5, 0.25])
    assert [len(nodes[n]) / len(hospitals[n].training) for n in nodes] == pytest.approx([1, 0.5, 0.25], abs=0.2)
    nodes = nodes_of(description, skew=["healthy", "healthy", "diseased"])
    labels = {name: {c.label for c in cases} for name, cases in nodes.items()}
    assert labels == {"north": {"normal"}, "south": {"clear"}, "west": {"covid"}}
    with pytest.raises(JobError, match="'west' has no images"):
        nodes_of(description, skew=["healthy"] * 3)
    with pytest.raises(JobError, match="'sizes' has 2 entries for 3 hospitals"):
        nodes_of(description, sizes=[1, 1])


@pytest.mark.parametrize("site", [["north", "west"], "west"], ids=["over two hospitals", "of one with one class"])
def test_a_task_whose_classes_are_its_hospitals_is_refused(describe, site):
    task = {"site": site, "classes": ["normal", "covid"]}
    with pytest.raises(JobError, match="scanner|must be a text"):
        assert describe(tasks={"covid": task}).hospitals


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": {}}, "'tasks' is {}"),
        ({"tasks": {"t": {"site": "east", "classes": ["a", "b"]}}}, "'east'; it must be one of the sites"),
        ({"tasks": {"t": {"site": "north", "classes": ["normal"]}}}, "at least two"),
        ({"budget": {"rounds": 3, "warm_up": 4}}, "at most 3"),
        ({"overrides": {"training": {}}}, "'overrides': .*has no overlay 'training'"),
        ({"root": None}, "below 'root'"),
        ({"sites": {"north": {"folder": "north"}}}, "labels.csv"),
        ({"path": "research.runner.stages.Place"}, "is not a kind of"),
        ({"path": "research.runner.nowhere.Data"}, "no class"),
    ],
)
def test_what_is_wrong_is_named(describe, changes, words):
    with pytest.raises(JobError, match=words):
        describe(**changes)


def test_an_external_test_needs_both_kinds_of_image(describe):
    task = {**BASE["tasks"]["north"], "external": {"site": "south", "ours": ["virus"], "theirs": ["ill", "clear"]}}
    with pytest.raises(JobError, match="with and without"):
        assert describe(tasks={"t": task}).hospitals


def test_absent_data_is_said_with_the_way_to_name_it(describe, tmp_path, monkeypatch):
    shutil.rmtree(tmp_path / "data" / "west")
    with pytest.raises(DataError, match="hospital 'west'.*west does not exist"):
        assert describe().hospitals
    monkeypatch.setenv("FEDMED_DATA", str(tmp_path / "none"))
    with pytest.raises(JobError, match="put or link it to"):
        assert describe().hospitals
    monkeypatch.delenv("FEDMED_DATA")
    with pytest.raises(JobError, match="nowhere is not a folder"):
        assert describe().hospitals


def test_a_table_with_an_empty_cell_is_refused(describe, tmp_path):
    (tmp_path / "data" / "west" / "labels.csv").write_text("file,label,patient\na.png,covid,\n")
    with pytest.raises(DataError, match="line 2 has no 'patient'"):
        assert describe().hospitals


def test_a_site_with_a_datalist_learns_from_all_but_its_held_out_lists(describe, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
    lists = {
        "training": [{"image": "a.png", "label": "normal", "patient": "A"}, {"image": "b.png", "label": "ill"}],
        "unlabeled": [{"image": "c.png", "label": "ill"}],
        "validation": [{"image": "d.png", "label": "ill"}],
        "testing": [{"image": "e.png", "label": "normal"}, {"image": "f.png", "label": "ill"}],
    }
    (tmp_path / "datalist.json").write_text(json.dumps(lists))
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"data_root": str(tmp_path), "device": "cpu"}))
    task = {"site": "own", "classes": ["normal", "ill"]}
    description = describe(sites={"own": {}}, tasks={"t": task}, healthy={"own": ["normal"]})
    hospital = description.hospitals["own"]
    training = [(c.image, c.label, c.patient) for c in hospital.training]
    assert training == [("a.png", "normal", "A"), ("b.png", "ill", "b"), ("c.png", None, "c")]
    assert [c.image for c in hospital.testing] == ["e.png", "f.png"]
    # Where nobody has looked, nothing is known: a skewed arm has no use for such images.
    nodes = nodes_of(description, skew=["diseased"])
    assert [c.image for c in nodes["own"]] == ["b.png"]


GENERATOR = np.random.default_rng(0)
CASES = [
    ImageCase(f"{patient}_{i}.png", "ill" if patient % 3 else "normal", f"p{patient}")
    for patient in range(90)
    for i in range(GENERATOR.integers(1, 6))
]


def test_halves_have_no_patient_in_common_and_are_even_in_every_class():
    a, b = halves(CASES, "test")
    assert not {c.patient for c in a} & {c.patient for c in b} and len(a) + len(b) == len(CASES)
    for label in ("ill", "normal"):
        counts = [Counter(c.label for c in half)[label] for half in (a, b)]
        assert abs(counts[0] - counts[1]) <= 2


def test_halves_depend_on_names_and_purpose_alone():
    a, _ = halves(CASES, "test")
    assert {c.image for c in halves(CASES[::-1], "test")[0]} == {c.image for c in a}
    assert {c.image for c in halves(CASES, "nodes")[0]} != {c.image for c in a}


def test_shares_are_nested_and_of_whole_patients():
    quarter, half = share(CASES, 0.25, "size"), share(CASES, 0.5, "size")
    assert {c.image for c in quarter} < {c.image for c in half} < {c.image for c in CASES}
    assert abs(len(quarter) - len(CASES) / 4) <= 5 and share(CASES, 1, "size") == CASES
    chosen = {c.patient for c in half}
    assert [c for c in CASES if c.patient in chosen] == half
