"""The chest X-ray bundle: complete, the paper's numbers, and every step on its own, without a federation."""

import csv
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.bundle import ConfigWorkflow
from PIL import Image

from fedmed.bundles.bundle import Bundle
from fedmed.errors import DataError, OverrideError
from fedmed.export.exporter import WITHOUT_FEDMED
from tests.bundles.one_bundle import OneBundle

HERE = OneBundle("cxr_classification")
BUNDLE, METADATA, configs, parse = HERE.root, HERE.metadata, HERE.configs, HERE.parse
CLASSES = ["normal", "consolidation", "interstitial"]


def workflow(*names, kind="train", **values):
    settings = {"bundle_root": str(BUNDLE), "device": "cpu", "logging_file": False, **values}
    made = ConfigWorkflow(configs(*names), meta_file=str(METADATA), workflow_type=kind, **settings)
    made.initialize()
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site whose classes are bright in different places: on the left, on the right, nowhere."""
    root = tmp_path_factory.mktemp("site")
    (root / "images").mkdir()
    rng = np.random.default_rng(0)
    lists = {}
    for key, count in {"training": 24, "validation": 15, "testing": 12, "unlabeled": 24}.items():
        lists[key] = []
        for number in range(count):
            name = CLASSES[number % 3]
            image = rng.integers(0, 60, (48, 40), dtype=np.uint8)
            image[12:36, 4:18] += 150 * (name == "consolidation")
            image[12:36, 22:36] += 150 * (name == "interstitial")
            file = f"images/{key}{number:02d}.png"
            Image.fromarray(image).save(root / file)
            lists[key].append({"image": file} | ({} if key == "unlabeled" else {"label": name}))
    (root / "datalist.json").write_text(json.dumps(lists))
    return root


@pytest.fixture(scope="module")
def facts(site):
    """Places at the site, and a size at which a step takes a few milliseconds."""
    places = {name: str(site / folder) for name, folder in (("ckpt_dir", "models"), ("output_dir", "out"))}
    small = {"image_size": 32, "batch_size": 12, "encoder_widths": [4, 8, 8, 16], "stem_pool": False}
    return {"dataset_dir": str(site), "cache_dir": str(site / "cache"), "classes": CLASSES, **places, **small}


# --- a complete bundle


def test_properties(facts):
    for names in ("train", "train demo pretrain", "train linear", "train linear_sgd", "train finetune"):
        assert workflow(*names.split(), **facts).check_properties() == []
    made = workflow("inference", kind="infer", dataset_dir=facts["dataset_dir"])
    assert made.check_properties() == [] and made.channel_def["0"] == "normal"


def test_the_settings_of_the_paper(facts):
    train, pretrain = parse("train"), parse("train", "pretrain", dataset_dir=facts["dataset_dir"], cache_dir=None)
    expected = {
        **{"image_size": 256, "batch_size": 64, "sgd_momentum": 0.9, "weight_decay": 1e-4, "dim": 128},
        **{"milestones": [120, 160], "milestone_factor": 0.1, "contrast_temperature": 0.2, "key_momentum": 0.999},
        **{"queue_size": 1024, "box_cox": 0.5, "eta": 0.05, "rsa_samples": 100, "key_policy": "copy"},
    }
    assert {key: train[key] for key in expected} == expected
    assert pretrain.get_parsed_content("learning_rate") == 0.03
    assert pretrain.get_parsed_content("max_epochs") == 200
    assert pretrain.get_parsed_content("metadata#least") == 256
    linear, finetune = parse("train", "demo", "linear"), parse("train", "demo", "finetune")
    assert (linear["weight_decay"], linear["max_epochs"], linear["epoch_length"]) == (0.2, 10, 20)
    published = parse("train", "linear_sgd").get_parsed_content("optimizer").defaults
    assert parse("train", "linear_sgd")["max_epochs"] == 50
    assert (published["lr"], published["momentum"], published["weight_decay"]) == (0.1, 0.9, 0.0)
    assert (finetune["learning_rate"], finetune["max_epochs"], finetune["label_fraction"]) == (0.01, 100, 1.0)
    assert train["optimizer#_target_"] == "torch.optim.SGD"
    trainer = pretrain.get_parsed_content("train#trainer").options
    assert (trainer.queue_size, trainer.momentum, trainer.temperature) == (1024, 0.999, 0.2)
    assert (trainer.synthetic_fraction, trainer.box_cox, trainer.milestones) == (0.05, 0.5, (120, 160))


def test_inference_and_training_agree():
    """Inference repeats how training prepares an image; the other settings: test_every_bundle.py."""
    train, inference = parse("train"), parse("inference")
    *prepared, shown, banded = inference["preprocessing"]["transforms"]
    assert prepared == train["prepare"]
    assert shown["func"] == "$lambda image: image ** @image_gamma" and inference["image_gamma"] == 1
    assert banded["factors"] == "@image_bands" and inference["image_bands"] is None


# --- for federations


@pytest.mark.parametrize("names", [("train",), ("train", "demo", "pretrain")])
def test_sharing_groups_fit_the_real_names(names):
    network = parse(*names).get_parsed_content("network_def")
    groups = parse("federation")["sharing"][type(network).__name__]
    assert groups["full"] == []
    for pattern in (pattern for patterns in groups.values() for pattern in patterns):
        assert any(re.search(pattern, name) for name in network.state_dict())
    head = next(patterns for group, patterns in groups.items() if group != "full")
    shared = [name for name in network.state_dict() if not any(re.search(pattern, name) for pattern in head)]
    assert {name.split(".")[0] for name in shared} == {"encoder"}


@pytest.mark.parametrize("overlay", ["pretrain", "linear", "linear_sgd", "finetune"])
def test_every_overridable_setting_exists_and_is_plain(facts, overlay):
    learns = ("unlabelled", "agreement")
    config = parse("train", "demo", *learns, overlay, dataset_dir=facts["dataset_dir"], cache_dir=None)
    for key in parse("federation")["overridable"]:
        value = config.get_parsed_content(key)
        values = value if isinstance(value, list) else [value]
        assert all(item is None or isinstance(item, (int, float, bool, str)) for item in values), key
        assert not key.endswith(("_dir", "_root", "_path")) and key not in ("device", "datalist", "pretrained")
    text = "".join(Path(path).read_text() for path in configs("train", "pretrain", "linear", *learns))
    unused = [key for key in parse("federation")["overridable"] if f"@{key}" not in text]
    assert not unused


def test_what_a_federation_reads():
    bundle = Bundle("cxr_classification", ["demo", "linear"], {"classes": ["a b", "c"], "learning_rate": 0.2})
    assert (bundle.score.validation, bundle.score.test) == ("val_auroc", "auroc")
    parser = bundle.parser(device="cpu")
    network = parser.get_parsed_content("network")
    assert network.classifier.out_features == 2
    assert bundle.federation["calibration"] in network.state_dict()
    assert parser.get_parsed_content("optimizer").defaults["lr"] == 0.2


def test_no_file_of_the_bundle_decides_a_federations_first_model(facts, tmp_path):
    """``pretrained`` is named by the overlay, is not there, and is only looked for by ``run``."""
    parser = parse("train", "demo", "linear", **{**facts, "ckpt_dir": str(tmp_path)})
    parser.get_parsed_content("network")
    with pytest.raises(RuntimeError) as caught:
        parser.get_parsed_content("start")
    assert "pretrained.pt does not exist; pre-train first" in str(caught.value.__cause__)


# --- each step alone


@pytest.fixture(scope="module")
def pretrained(facts):
    """Pre-train as the command line does; the workflow."""
    made = workflow("train", "demo", "pretrain", **facts, pretraining_epochs=3, queue_size=24)
    made.run()
    return made


def test_pre_training_writes_what_it_trained(pretrained, facts):
    weights = torch.load(Path(facts["ckpt_dir"]) / "pretrained.pt", weights_only=True)
    network = pretrained.parser.get_parsed_content("network")
    assert set(weights) == set(network.state_dict())
    assert all(torch.equal(weights[name], tensor) for name, tensor in network.state_dict().items())
    trainer = pretrained.parser.get_parsed_content("train#trainer")
    assert -1 <= trainer.extras()["rsa"] < 1
    assert len(pretrained.parser.get_parsed_content("train#data")) == 48  # training and unlabeled, nothing else
    assert network.state_dict()["encoder.bn1.num_batches_tracked"] > 0


def test_feature_statistics(pretrained, facts):
    values = {**facts, "metadata_min_images": 20, "dim": 8}
    result = parse("train", "demo", "pretrain", **values).get_parsed_content("metadata#provider")()
    assert result["n"] == 48 and result["mu"].shape == (8,) and result["sigma"].shape == (36,)
    more = parse("train", "pretrain", **{**values, "metadata_min_images": 49})
    assert more.get_parsed_content("metadata#provider")() == {}


@pytest.mark.parametrize(
    ("job", "site", "least"), [(2, None, 64), (100, None, 100), (2, 10, 10), (20, 10, 20), (64, 500, 500)]
)
def test_a_job_can_only_raise_the_images_that_a_sites_statistics_need(job, site, least):
    bundle = Bundle("cxr_classification", ["demo", "pretrain"], {"metadata_min_images": job})
    assert bundle.parser(site_min_images=site).get_parsed_content("metadata#least") == least
    with pytest.raises(OverrideError, match="site_min_images"):
        Bundle("cxr_classification", ["demo", "pretrain"], {"site_min_images": 2})


def test_views_start_from_two_contrasts_of_the_image(pretrained):
    batch = next(iter(pretrained.parser.get_parsed_content("train#dataloader")))["image"]
    assert batch.shape == (12, 2, 1, 32, 32) and batch.min() >= 0 and batch.max() <= 1
    assert not torch.equal(batch[:, 0], batch[:, 1])
    probe = [b["image"] for b in pretrained.parser.get_parsed_content("train#probe")]
    again = [b["image"] for b in pretrained.parser.get_parsed_content("train#probe")]
    assert sum(map(len, probe)) == 48 and all(map(torch.equal, probe, again)) and probe[0].ndim == 4


@pytest.mark.parametrize("overlay", ["linear", "linear_sgd"])
def test_the_linear_probe_leaves_the_encoder_alone(pretrained, facts, overlay):
    made = workflow("train", "demo", overlay, **facts, val_interval=10)
    made.run()
    weights = torch.load(Path(facts["ckpt_dir"]) / "pretrained.pt", weights_only=True)
    network = made.parser.get_parsed_content("network").state_dict()
    assert all(torch.equal(network[name], tensor) for name, tensor in weights.items() if name.startswith("encoder."))
    assert made.parser.get_parsed_content("validate#evaluator").state.metrics["val_auroc"] > 0.7


def test_fine_tuning_starts_from_the_encoder_with_few_labels(pretrained, facts):
    changes = {"max_epochs": 1, "label_fraction": 0.03, "validate#handlers": []}
    made = workflow("train", "demo", "finetune", **facts, **changes)
    assert len(made.parser.get_parsed_content("train#data")) == 3  # 3 % of 24 would be 1: one of each class
    made.parser.get_parsed_content("start")
    weights = torch.load(Path(facts["ckpt_dir"]) / "pretrained.pt", weights_only=True)
    encoder = made.parser.get_parsed_content("network").encoder.state_dict()
    assert all(torch.equal(tensor, weights[f"encoder.{name}"]) for name, tensor in encoder.items())
    made.run()
    trained = made.parser.get_parsed_content("network").encoder.conv1.weight
    assert not torch.equal(trained, weights["encoder.conv1.weight"])


def test_train_evaluate_calibrate_infer(facts, site, tmp_path, capsys):
    """The whole way of a model on its own, on the same weights."""
    facts = {**facts, "ckpt_dir": str(tmp_path / "models"), "output_dir": str(tmp_path / "out")}
    workflow("train", "demo", **facts, max_epochs=12, val_interval=4, learning_rate=0.05).run()
    workflow("train", "demo", "evaluate", **facts).run()
    printed = dict(re.findall(r"^(\w+): ([\d.]+)$", capsys.readouterr().out, re.MULTILINE))
    assert float(printed["auroc"]) > 0.95 and float(printed["accuracy"]) > 0.5 and float(printed["n_cases"]) == 12
    assert (tmp_path / "out" / "cases" / "best.npz").is_file()

    workflow("train", "demo", "calibrate", **facts).run()
    printed = dict(re.findall(r"^(\w+): ([\d.]+)$", capsys.readouterr().out, re.MULTILINE))
    assert float(printed["nll_after"]) <= float(printed["nll_before"]) and {"ece_before", "ece_after"} < set(printed)
    weights = torch.load(tmp_path / "models" / "model.pt", weights_only=True)
    assert float(weights["temperature"]) == pytest.approx(float(printed["temperature"]), abs=1e-4) != 1

    folder = tmp_path / "in"
    (folder / "ward").mkdir(parents=True)
    for number, name in enumerate(("a.png", "ward/b.png", "=c.jpg")):
        Image.open(site / f"images/testing{number:02d}.png").save(folder / name, quality=95)
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    values = {**facts, "dataset_dir": str(folder), "model_path": str(tmp_path / "models" / "model.pt")}
    values = {key: value for key, value in values.items() if key not in ("cache_dir", "ckpt_dir")} | {"batch_size": 3}
    made = workflow("inference", "demo", kind="infer", **values, heat_maps=True)
    made.run()
    check_predictions(tmp_path / "out", made, folder)


def check_predictions(out, made, folder):
    rows = list(csv.DictReader((out / "predictions.csv").open()))
    assert [row["image"] for row in rows] == ["'=c.jpg", "a.png", "broken.png", "ward/b.png"]  # quoted: no formula
    network = made.parser.get_parsed_content("network").eval()
    image = made.parser.get_parsed_content("preprocessing")({"image": str(folder / "ward" / "b.png")})["image"]
    with torch.no_grad():
        expected = network.probabilities(network(image.as_tensor()[None]))[0]
    got = [float(rows[3][f"p_{name}"]) for name in CLASSES]
    assert got == pytest.approx(expected.tolist(), abs=1e-5) and sum(got) == pytest.approx(1, abs=1e-5)
    assert rows[3]["predicted"] == CLASSES[int(expected.argmax())] and not rows[3]["error"]
    assert "broken.png is damaged" in rows[2]["error"] and not rows[2]["predicted"] and not rows[2]["p_normal"]
    content = json.loads((out / "predictions.json").read_text())
    assert content[2]["probabilities"] == dict.fromkeys(CLASSES) and content[3]["predicted"] == rows[3]["predicted"]
    maps = sorted(path.relative_to(out / "heat_maps").as_posix() for path in (out / "heat_maps").rglob("*.png"))
    assert maps == ["=c.jpg.png", "a.png.png", "ward/b.png.png"]
    colours = np.asarray(Image.open(out / "heat_maps" / maps[0])).astype(int)
    assert colours.shape == (512, 512, 3) and (colours[..., 0] - colours[..., 2]).max() > 50


# --- what goes wrong


def cause(caught):
    error = caught.value
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def test_a_folder_without_one_readable_image_is_an_error(tmp_path, facts, caplog):
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    network = parse("inference", "demo", **sizes(facts)).get_parsed_content("network_def")
    torch.save(network.state_dict(), tmp_path / "model.pt")
    places = {"dataset_dir": str(tmp_path), "output_dir": str(tmp_path), "model_path": str(tmp_path / "model.pt")}
    made = workflow("inference", "demo", kind="infer", **sizes(facts), **places)
    with pytest.raises(RuntimeError) as caught, caplog.at_level(logging.CRITICAL):
        made.run()
    assert re.search("none of 1 images could be read; the first: .*x.png is damaged", str(cause(caught)))
    assert (tmp_path / "predictions.csv").is_file()


def sizes(facts):
    return {key: facts[key] for key in ("image_size", "encoder_widths", "stem_pool")}


def test_inference_without_weights_says_so(facts, tmp_path):
    places = {"dataset_dir": facts["dataset_dir"], "model_path": str(tmp_path / "model.pt")}
    made = workflow("inference", "demo", kind="infer", **sizes(facts), **places)
    with pytest.raises(RuntimeError) as caught:
        made.run()
    assert "model.pt does not exist; train the bundle first" in str(cause(caught))


def test_a_damaged_training_image_is_named(site, facts, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    entry = {"image": "images/bad.png", "label": "normal"}
    (tmp_path / "datalist.json").write_text(json.dumps({"training": [entry]}))
    parser = parse("train", "demo", **{**facts, "dataset_dir": str(tmp_path)})
    with pytest.raises(RuntimeError) as caught:
        parser.get_parsed_content("train#dataloader")
    errors = [caught.value]
    while errors[-1].__cause__ is not None:
        errors.append(errors[-1].__cause__)
    result = next(error for error in errors if isinstance(error, DataError))
    assert "bad.png" in str(result) and "damaged" in str(result)


@pytest.mark.slow
def test_command_line(site, tmp_path, fedmed_home):
    """``python -m monai.bundle run`` from the bundle's folder and from elsewhere; inference without FedMed."""
    places = ["--dataset_dir", str(site), "--ckpt_dir", str(tmp_path), "--output_dir", str(tmp_path / "out")]
    small = ["--image_size", "32", "--max_epochs", "1", "--device", "cpu"]
    train = ["-m", "monai.bundle", "run", "--config_file", "['configs/train.yaml','configs/demo.yaml']"]
    files = str([str(BUNDLE / "configs" / f"{name}.yaml") for name in ("inference", "demo")])
    infer = ["-c", WITHOUT_FEDMED, "run", "--config_file", files, "--bundle_root", str(BUNDLE)]
    weights = ["--model_path", str(tmp_path / "model.pt")]
    for command, folder in (
        ([*train, *places, "--cache_dir", str(tmp_path / "cache"), *small], BUNDLE),
        ([*infer, *places[:2], *places[4:], *weights, "--image_size", "32", "--device", "cpu"], tmp_path),
    ):
        done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(csv.reader((tmp_path / "out" / "predictions.csv").open()))) == 1 + 75
