"""Tables of pre-training from end to end: two hospitals of a dozen made-up images each."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from fedmed.experiments.pretraining import downstream, queue
from fedmed.experiments.pretraining.arms import Arm, load_table
from fedmed.experiments.pretraining.description import load_description
from fedmed.experiments.pretraining.downstream import predictions, with_encoder
from fedmed.experiments.pretraining.hospitals import open_hospitals
from fedmed.experiments.pretraining.plan import images_of, pretrainings
from fedmed.experiments.pretraining.tasks import evaluations, of_test, task_sites, truths
from fedmed.experiments.processes import Failure
from PIL import Image

from fedmed.bundles.load import Bundle

SMALL = {"batch_size": 4, "image_size": 32}
PRETRAIN = {**SMALL, "queue_size": 8, "metadata_min_images": 4, "rsa_samples": 6}
DATA = {
    "experiment": "pretraining",
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
    "budget": {"rounds": 2, "warm_up": 1},
    "overrides": {"pretrain": PRETRAIN, "linear": {**SMALL, "max_epochs": 2}, "finetune": {**SMALL, "max_epochs": 2}},
}
PAIR = {"better": "FedMoCo", "worse": "random", "protocol": "linear", "fractions": [1]}
TABLE = {
    "experiment": "pretraining",
    "title": "T",
    "seeds": [0],
    "protocols": {"linear": {"fractions": [0.5, 1], "draws": 2}, "finetune": {"fractions": [1], "every": 1}},
    "arms": {"FedMoCo": {"method": "fedmoco"}, "local": {"method": "local"}, "random": {"method": "random"}},
    "claims": [
        {"id": 1, "text": "better", "holds": [PAIR]},
        {"id": 7, "text": "slower", "slows": {"arms": ["FedMoCo"]}},
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
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(TABLE))
    return tmp_path


@pytest.fixture
def in_this_process(monkeypatch):
    """Work without processes: their start would be most of the test. Returns what was worked on."""
    worked = []

    def work_on(items, jobs, do):
        for item in items:
            worked.append(item.name)
            yield item, do(item)

    monkeypatch.setattr(queue, "in_processes", work_on)
    return worked


def command(data, *more):
    return [str(data / "t.yaml"), "--data", str(data / "two.yaml"), "--out", str(data / "out"), *more]


def test_a_table_from_end_to_end_and_again(data, in_this_process, load_script, capsys):
    main = load_script("reproduce").main
    assert main(command(data)) == 0
    assert in_this_process == ["FedMoCo, seed 0", "local at north, seed 0", "local at south, seed 0", "random, seed 0"]
    folder = data / "out" / "two" / "t"
    rows = list(csv.DictReader((folder / "scores.csv").open()))
    assert {row["arm"] for row in rows} == {"FedMoCo", "local", "local: north", "local: south", "random"}
    # Linear: two draws and all labels; fine-tuning: one draw with its last and highest epoch; both on two tests.
    assert len([row for row in rows if row["arm"] == "FedMoCo"]) == 2 * (3 + 2)
    assert len([row for row in rows if row["arm"] == "local"]) == 2 * 2 * (3 + 2)
    highest = {row["model"]: float(row["accuracy"]) for row in rows if row["protocol"] == "finetune"}
    assert highest["highest"] >= highest["last"]
    claims = (folder / "claims.md").read_text()
    assert "first → last third" in claims and "| 1 | better |" in claims
    text = (folder / "table.md").read_text()
    assert "| local: south |" in text and "50 % of the labels" in text
    before = (folder / "scores.csv").read_bytes()
    assert main(command(data)) == 0 and len(in_this_process) == 4
    assert (folder / "scores.csv").read_bytes() == before
    assert "4 encoders with 16 classifiers, 4 encoders finished before" in capsys.readouterr().out
    # A lost prediction is made again, and the same, from the encoder that is there.
    lost = next((data / "out" / "runs").glob("*/downstream/*-linear-1-*.npz"))
    wanted = np.load(lost)["internal_last"]
    lost.unlink()
    assert main(command(data)) == 0 and len(in_this_process) == 5
    assert np.array_equal(np.load(lost)["internal_last"], wanted)


def test_an_arm_with_a_failed_run_is_left_out(data, monkeypatch, load_script, capsys):
    def fail(items, jobs, do):
        for item in items:
            yield item, Failure("out of luck") if "north" in item.name or "FedMoCo" in item.name else do(item)

    monkeypatch.setattr(queue, "in_processes", fail)
    (data / "t.yaml").write_text(yaml.safe_dump({**TABLE, "protocols": {"linear": {"fractions": [1]}}}))
    assert load_script("reproduce").main(command(data)) == 2
    assert "FedMoCo, seed 0: out of luck" in capsys.readouterr().err
    arms = {row["arm"] for row in csv.DictReader((data / "out" / "two" / "t" / "scores.csv").open())}
    assert arms == {"random"}
    assert "| 1 | better | not run |" in (data / "out" / "two" / "t" / "claims.md").read_text()


@pytest.fixture
def opened(data):
    description = load_description(data / "two.yaml")
    return description, open_hospitals(description), data / "out"


def test_no_encoder_ever_sees_a_test_image_or_a_label(opened):
    description, hospitals, out = opened
    tests = {name: {c.image for c in hospital.testing} for name, hospital in hospitals.items()}
    for method in ("fedmoco", "oracle", "local"):
        for made in pretrainings(Arm("a", method), description, hospitals, 0, out):
            for site in made.run.sites.values():
                assert set(yaml.safe_load(site.datalist.read_text())) == {"unlabeled"}
                assert '"label"' not in site.datalist.read_text()
                for image in images_of(site):
                    assert Path(image).name not in tests[Path(image).parent.name] and Path(image).is_file()


def test_methods_differ_in_weighting_and_exchange_alone(opened):
    description, hospitals, out = opened
    jobs = {
        method: pretrainings(Arm("a", method), description, hospitals, 0, out)[0].run.job
        for method in ("fedavg", "mt", "saa", "fedmoco")
    }
    exchange = {"from_round": 1, "names": ["mu", "sigma", "n"]}
    assert {m: (job.weighting, job.exchange) for m, job in jobs.items()} == {
        "fedavg": ("samples", None),
        "mt": ("samples", exchange),
        "saa": ("self_adaptive", None),
        "fedmoco": ("self_adaptive", exchange),
    }
    rest = [{k: v for k, v in vars(j).items() if k not in ("weighting", "exchange")} for j in jobs.values()]
    assert all(each == rest[0] for each in rest) and rest[0]["overlays"] == ["demo", "pretrain"]


def test_a_task_trains_at_one_hospital_and_the_other_gives_test_images_alone(opened):
    description, hospitals, out = opened
    own, other = task_sites(description.tasks[0], hospitals, out)
    assert own.data_root.name == "north" and set(yaml.safe_load(own.datalist.read_text())) == {"training", "testing"}
    assert other.data_root.name == "south" and set(yaml.safe_load(other.datalist.read_text())) == {"testing"}
    known = truths(description, hospitals)
    assert known["lungs", "external"].classes == ("none", "disease")
    p = np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]])
    np.testing.assert_allclose(of_test(description.tasks[0], "external", p), [[0.2, 0.8], [0.9, 0.1]])
    assert (of_test(description.tasks[0], "internal", p) == p).all()


def test_predictions_are_those_of_the_encoder_and_the_same_again(opened, data):
    description, hospitals, out = opened
    each = evaluations(Arm("a", "random"), load_table(data / "t.yaml"), description, hospitals, 0, out)[0]
    first = predictions(each, None, out)
    again = predictions(each, None, out)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    np.testing.assert_allclose(first["internal_last"].sum(1), 1, atol=1e-5)
    network = Bundle("cxr_classification", ["demo"]).parser(device="cpu").get_parsed_content("network")
    other = {n: torch.full_like(t, 0.01) for n, t in network.state_dict().items() if n.startswith("encoder.")}
    assert not np.array_equal(predictions(each, other, out)["internal_last"], first["internal_last"])
    with pytest.raises(Exception, match="does not fit"):
        with_encoder(network, dict(list(other.items())[1:]))


def test_grey_levels_take_the_encoders_place(opened, data):
    """North's labels are made its exposures: nine numbers tell them, for whatever network."""
    description, hospitals, out = opened
    for i in range(24):
        picture = np.full((32, 32), 60 + 60 * (i % 3), dtype=np.uint8)
        picture[:4] = np.arange(32) * 8
        Image.fromarray(picture).save(data / "data" / "north" / f"{i}.png")
    table = load_table(data / "t.yaml")
    arm = Arm("a", "grey_levels")
    (made,) = pretrainings(arm, description, hospitals, 0, out)
    assert made.run is None
    every = evaluations(arm, table, description, hospitals, 0, out)
    each = next(e for e in every if (e.protocol.kind, e.fraction) == ("linear", 1))
    found, other = (predictions(e, None, out)["internal_last"] for e in (each, replace(each, seed=1)))
    assert (found.argmax(1) == downstream.test_labels(each.site, each.classes)).all()
    np.testing.assert_allclose(found, other, atol=1e-3)


def test_tables_of_two_kinds_are_run_apart(load_script, capsys, data):
    script = load_script("reproduce")
    assert script.main(["table1", "fedmoco_table2"]) == 2
    assert "run them apart" in capsys.readouterr().err
    assert script.main(["table1", "--data", str(data / "two.yaml")]) == 2
    (data / "t.yaml").write_text("experiment: other\n")
    assert script.main(command(data)) == 2
    assert "'experiment' is 'other'; use federations or pretraining" in capsys.readouterr().err


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDMED_DATA") or Path(__file__).parents[4] / "shared/data") / "cxr_nih").is_dir(),
    reason="the real images are not here",
)
def test_the_real_description_fits_the_images():
    path = Path(__file__).resolve().parents[3] / "experiments" / "data" / "cxr_real.yaml"
    description = load_description(path)
    hospitals = open_hospitals(description)
    assert not hospitals["hannover"].testing and not any(task.site == "hannover" for task in description.tasks)
    assert {c.patient for c in hospitals["nih"].training}.isdisjoint({c.patient for c in hospitals["nih"].testing})
