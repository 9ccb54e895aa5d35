"""Tables of pre-training from end to end: two hospitals of a dozen synthetic images each."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError, JobError
from fedmed.methods.declarations import Exchanged
from fedmed.systems.fedmoco.method import SELF_ADAPTIVE
from research.runner import work_queue
from research.runner.class_tasks import task_question
from research.runner.classifier_training import predictions, with_encoder
from research.runner.classifiers import Classifiers
from research.runner.encoder_training import EncoderTraining
from research.runner.experiment_data import load_data
from research.runner.parallel import Failure
from research.runner.stages import Place
from research.runner.untrained_encoders import GreyLevelEncoder, RandomEncoder
from research.runner.yaml_models import build
from tests.commands import fedmed

from .shipped_tables import EXPERIMENTS, data_of
from .table_yaml import OF_IMAGES, ROOM

SMALL = {"batch_size": 4, "image_size": 32}
PRETRAIN = {**SMALL, "queue_size": 8, "metadata_min_images": 4, "rsa_samples": 6}
DATA = {
    "path": f"{ROOM}.hospital_data.HospitalData",
    "bundle": "cxr_classification",
    "overlays": ["demo"],
    "job": {"method": {"path": "fedmed.systems.fedmoco.method.FedAvgMoCo"}},
    "privacy": {"allowed_extras": ["rsa", "mu", "sigma", "n"], "extras_min_images": 2},
    "root": "nowhere",
    "sites": {name: {"folder": name, "table": "labels.csv"} for name in ("north", "south")},
    "healthy": {"north": ["normal"], "south": ["clear"]},
    "tasks": {
        "lungs": {
            "site": "north",
            "classes": ["normal", "bacteria", "virus"],
            "external": {"site": "south", "ours": ["bacteria", "virus"], "theirs": ["ill"]},
        }
    },
    "budget": {"rounds": 2, "warm_up": 1, "shares": {"milestones": [0.6, 0.8]}},
    "overrides": {"pretrain": PRETRAIN, "linear": {**SMALL, "max_epochs": 1}, "finetune": {**SMALL, "max_epochs": 2}},
}
PAIR = {"better": "FedMoCo", "worse": "random", "protocol": "linear", "fractions": [1]}
FEDMOCO = "fedmed.systems.fedmoco.method.FedMoCo"
METHODS = {
    "FedAvg": {},
    "+MT": {"method": {"path": FEDMOCO, "args": {"adaptive": False, "exchange_from": "warm_up"}}},
    "+SAA": {"method": {"path": FEDMOCO, "args": {"exchange_from": None}}},
    "FedMoCo": {"method": {"path": FEDMOCO, "args": {"exchange_from": "warm_up"}}},
}
PROTOCOLS = {"linear": {"fractions": [0.5, 1], "draws": 2}, "finetune": {"fractions": [1], "every": 1}}
FEWER = {"protocols": {"linear": {"fractions": [1]}}}  # of arms whose draws and fine-tuning nobody looks at
TABLE = {
    "title": "T",
    "data": "two",
    "seeds": [0],
    "chain": {
        "encoder": {"path": f"{ROOM}.encoder_training.EncoderTraining"},
        "classifiers": {"path": f"{ROOM}.classifiers.Classifiers", "protocols": PROTOCOLS},
    },
    "scores": OF_IMAGES,
    "layout": {"path": f"{ROOM}.share_columns.ShareColumns", "external": ["auroc"]},
    "arms": {
        "FedMoCo": {"encoder": {"job": METHODS["FedMoCo"]}},
        "local": {"encoder": {"nodes": "local"}, "classifiers": FEWER},
        "random": {"encoder": {"path": f"{ROOM}.untrained_encoders.RandomEncoder"}, "classifiers": FEWER},
    },
    "claims": [
        {"id": 1, "text": "better", "path": f"{ROOM}.patient_claims.BetterByPatients", "holds": [PAIR]},
        {"id": 7, "text": "slower", "path": "research.tables.fedmoco.slows", "arms": ["FedMoCo"], "value": "rsa"},
    ],
}
LABELS = {"north": ["normal", "bacteria", "virus"], "south": ["clear", "ill"]}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_DATA", str(tmp_path / "data"))
    generator = np.random.default_rng(0)
    for name, labels in LABELS.items():
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        rows = [f"{i}.png,{labels[i % len(labels)]},p{i}" for i in range(24)]
        for i in range(24):
            Image.fromarray(generator.integers(0, 255, (32, 32), dtype=np.uint8)).save(folder / f"{i}.png")
        (folder / "labels.csv").write_text("\n".join(["file,label,patient", *rows]) + "\n")
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(DATA))
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(TABLE, sort_keys=False))
    return tmp_path


def command(data, *more):
    return [str(data / "t.yaml"), "--data", str(data / "two.yaml"), "--out", str(data / "out"), *more]


def test_a_table_from_end_to_end_and_again(data, in_this_process, capsys, monkeypatch):
    main = fedmed("research", "run")
    assert main(command(data)) == 0
    assert in_this_process == ["FedMoCo, seed 0", "local at north, seed 0", "local at south, seed 0", "random, seed 0"]
    folder = data / "out" / "two" / "t"
    rows = list(csv.DictReader((folder / "models.csv").open()))
    assert {row["arm"] for row in rows} == {"FedMoCo", "local", "local: north", "local: south", "random"}
    # Linear: two draws and all labels; fine-tuning: one draw with its last and highest epoch; both on two tests.
    assert len([row for row in rows if row["arm"] == "FedMoCo"]) == 2 * (3 + 2)
    assert len([row for row in rows if row["arm"] == "local"]) == 2 * 2, "each hospital's, on two tests"
    tuned = [row for row in rows if row["protocol"] == "finetune" and row["list"] == "internal"]
    highest = {row["model"]: float(row["accuracy"]) for row in tuned}
    assert highest["highest"] >= highest["last"]
    claims = (folder / "claims.md").read_text()
    assert "first → last third" in claims and "| 1 | better |" in claims
    text = (folder / "table.md").read_text()
    assert "| local: south |" in text and "50 % of the labels" in text
    before = (folder / "scores.csv").read_bytes()
    monkeypatch.setattr("research.runner.share_columns.png", lambda figure: b"drawn above")
    assert main(command(data)) == 0 and len(in_this_process) == 4
    assert (folder / "scores.csv").read_bytes() == before
    assert "4 runs, 0 of them shared, 4 finished before" in capsys.readouterr().out
    _takes_over_the_seed(data, main, (folder / "table.md").read_bytes())
    assert len(in_this_process) == 4
    # A lost prediction is made again, and the same, from the encoder that is there.
    lost = next((data / "out" / "runs").glob("*/downstream/*-linear-1-*.npz"))
    wanted = np.load(lost)["internal_last"]
    lost.unlink()
    assert main(command(data)) == 0 and len(in_this_process) == 5
    assert np.array_equal(np.load(lost)["internal_last"], wanted)


def _takes_over_the_seed(data, main, table):
    """With the scores that another machine wrote, nothing is run and the files are the same."""
    theirs = data / "theirs.csv"
    theirs.write_bytes((data / "out" / "two" / "t" / "scores.csv").read_bytes())
    elsewhere = [*command(data), "--out", str(data / "elsewhere"), "--scores", str(theirs)]
    assert main(elsewhere) == 0
    made = data / "elsewhere" / "two" / "t"
    assert (made / "table.md").read_bytes() == table
    assert (made / "scores.csv").read_bytes() == theirs.read_bytes()


def test_an_arm_with_a_failed_run_is_left_out(data, monkeypatch, capsys):
    def fail(items, jobs, do, dask):
        assert do is work_queue.quietly
        for item in items:
            yield item, Failure("out of luck") if "north" in item.name or "FedMoCo" in item.name else do(item)

    monkeypatch.setattr(work_queue, "in_processes", fail)
    chain = TABLE["chain"]
    linear = {**chain, "classifiers": {**chain["classifiers"], "protocols": {"linear": {"fractions": [1]}}}}
    (data / "t.yaml").write_text(yaml.safe_dump({**TABLE, "chain": linear}, sort_keys=False))
    assert fedmed("research", "run")(command(data)) == 2
    assert "FedMoCo, seed 0: out of luck" in capsys.readouterr().err
    arms = {row["arm"] for row in csv.DictReader((data / "out" / "two" / "t" / "models.csv").open())}
    assert arms == {"random"}
    assert "| 1 | better | not run |" in (data / "out" / "two" / "t" / "claims.md").read_text()


@pytest.fixture
def place(data):
    return Place("a", 0, load_data(data / "two.yaml"), [], data / "out")


def classifier(place, encoder, seed=0):
    """The step of all labels' linear classifier."""
    place = replace(place, seed=seed)
    stage = build(Classifiers, {"protocols": {"linear": {"fractions": [1]}}}, "a")
    return stage.steps(place, encoder.steps(place, None)[0])[0]


def test_no_encoder_ever_sees_a_test_image_or_a_label(place):
    tests = {name: {c.image for c in hospital.testing} for name, hospital in place.data.hospitals.items()}
    for nodes in ("federated", "centralised", "local"):
        for step in EncoderTraining(nodes=nodes).steps(place, None):
            for site in step.machines():
                lists = json.loads(site.datalist.read_text())
                assert set(lists) == {"unlabeled"} and all(set(entry) == {"image"} for entry in lists["unlabeled"])
                for image in (site.data_root / entry["image"] for entry in lists["unlabeled"]):
                    assert image.name not in tests[image.parent.name] and image.is_file()


def test_methods_differ_in_weighting_and_exchange_alone(place):
    jobs = [EncoderTraining(job=method).job_of(place, ["north", "south"]) for method in METHODS.values()]
    exchange, adaptive = Exchanged(("mu", "sigma", "n"), 1), {"by": SELF_ADAPTIVE, "name": "rsa"}
    weighed = [job.short_rule["args"]["weighting"] for job in jobs]
    assert weighed == [*["samples"] * 2, *[{**adaptive, "form": "gap", "floor": 0.0}] * 2]
    assert [job.method.exchange() for job in jobs] == [Exchanged(), exchange, Exchanged(), exchange]
    rest = [job.study.model_dump(exclude={"method"}) for job in jobs]
    assert all(each == rest[0] for each in rest)
    assert all(job.overrides("unsupervised") == jobs[0].overrides("unsupervised") for job in jobs)
    assert all(job.overlays("unsupervised") == ["demo", "pretrain"] for job in jobs)
    assert rest[0]["overrides"]["unsupervised"]["milestones"] == [1, 2]


@pytest.mark.parametrize("name", ["fedmoco_table2", "fedmoco_table5"])
def test_where_nothing_is_averaged_momentum_contrast_goes_on_over_the_rounds(place, name):
    table, policies = yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text()), {}
    for arm, stages in table["arms"].items():
        if (nodes := (stages.get("encoder") or {}).get("nodes")) or "path" not in stages.get("encoder", {}):
            stage = build(EncoderTraining, stages.get("encoder", {}), arm)
            settings = stage.job_of(place, ["north"]).overrides("unsupervised")
            policies.setdefault(nodes, set()).add(settings.get("key_policy"))
    assert policies["centralised"] == policies["local"] == {"keep"} and "keep" not in policies[None]


def test_a_task_trains_at_one_hospital_and_the_other_gives_test_images_alone(place):
    task = place.data.tasks["lungs"]
    question = task_question("lungs", task, place.data.hospitals, place.runs)
    internal, other = question.tests["internal"], question.tests["external"]
    assert internal.site.data_root.name == "north" and other.site.data_root.name == "south"
    assert set(json.loads(internal.site.datalist.read_text())) == {"training", "testing"}
    assert set(json.loads(other.site.datalist.read_text())) == {"testing"}
    assert other.classes == ("none", "disease")
    p = np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]])
    np.testing.assert_allclose(question.as_asked("external", p), [[0.2, 0.8], [0.9, 0.1]])
    assert (question.as_asked("internal", p) == p).all()


def test_predictions_are_those_of_the_encoder_and_the_same_again(place):
    plan = classifier(place, RandomEncoder()).plan
    first, again = (predictions(plan, None, place.runs) for _ in range(2))
    assert all(np.array_equal(first[key], again[key]) for key in first)
    np.testing.assert_allclose(first["internal_last"].sum(1), 1, atol=1e-5)
    network = Bundle("cxr_classification", ["demo"]).parser(device="cpu").get_parsed_content("network")
    other = {n: torch.full_like(t, 0.01) for n, t in network.state_dict().items() if n.startswith("encoder.")}
    assert not np.array_equal(predictions(plan, other, place.runs)["internal_last"], first["internal_last"])
    with pytest.raises(Exception, match="does not fit"):
        with_encoder(network, dict(list(other.items())[1:]))


def test_grey_levels_take_the_encoders_place(place, data):
    """North's labels are made its exposures: nine numbers tell them, for whatever network."""
    for i in range(24):
        picture = np.full((32, 32), 60 + 60 * (i % 3), dtype=np.uint8)
        picture[:4] = np.arange(32) * 8
        Image.fromarray(picture).save(data / "data" / "north" / f"{i}.png")
    plan, other = (classifier(place, GreyLevelEncoder(), seed).plan for seed in (0, 1))
    first, again = (predictions(each, None, place.runs)["internal_last"] for each in (plan, other))
    assert [plan.question.task.classes[c] for c in first.argmax(1)] == plan.question.tests["internal"].labels
    np.testing.assert_allclose(first, again, atol=1e-3)
    assert plan.file(place.runs) != classifier(place, RandomEncoder()).plan.file(place.runs)


def test_a_chain_that_does_not_fit_is_refused(place):
    stage = build(Classifiers, {"protocols": {"finetune": {"fractions": [1], "every": 5}}}, "a")
    with pytest.raises(JobError, match="arm 'a': its encoder has no weights to train"):
        stage.steps(place, GreyLevelEncoder().steps(place, None)[0])
    with pytest.raises(JobError, match="arm 'a': classifiers need an encoder"):
        stage.steps(place, None)
    stage = build(Classifiers, {"protocols": {"lniear": {"fractions": [1]}}}, "a")
    with pytest.raises(BundleError, match="has no overlay 'lniear'"):
        stage.steps(place, RandomEncoder().steps(place, None)[0])


def test_tables_of_two_kinds_are_run_apart(capsys, data):
    script = fedmed("research", "run")
    assert script(["table1", "fedmoco_table2"]) == 2
    assert "which needs HospitalData" in (said := capsys.readouterr().err) and "run the tables apart" in said
    assert script(["table1", "--data", str(data / "two.yaml")]) == 2
    assert "which needs FederationData" in capsys.readouterr().err


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDMED_DATA") or Path(__file__).parents[3] / "shared/data") / "cxr_nih").is_dir(),
    reason="the real images are not here",
)
def test_the_real_description_fits_the_images():
    data = data_of("cxr_real")
    hospitals = data.hospitals
    assert not hospitals["hannover"].testing and not any(task.site == "hannover" for task in data.tasks.values())
    assert {c.patient for c in hospitals["nih"].training}.isdisjoint({c.patient for c in hospitals["nih"].testing})
