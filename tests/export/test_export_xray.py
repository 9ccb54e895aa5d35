"""Runs of a classifier, and of its pre-training, become bundles of their own kinds."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from monai.bundle import ConfigParser
from PIL import Image

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.contract import pretraining
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.errors import ExportError
from fedmed.export.bundle import export_bundle
from fedmed.export.card import story
from fedmed.export.configs import write_configs
from fedmed.export.exporter import ClassificationExporter, exporter_of
from fedmed.export.finished_run import read_finished
from fedmed.export.folder import copy_parts
from fedmed.export.verify import phantom, verify
from fedmed.export.weights import complete_weights
from fedmed.export.weights_origin import provenance
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.methods.method import Method
from fedmed.recovery.model_store import ModelStore

SITES = {"cxr_metro": "supervised", "cxr_rural": "supervised", "cxr_children": "evaluate"}
CLASSES = ["normal", "consolidation", "interstitial"]
SMALL = {"batch_size": 4, "queue_size": 16, "metadata_min_images": 4, "learning_rate": 0.02}
PRETRAINING = {
    "sites": dict.fromkeys(("cxr_metro", "cxr_rural"), "unsupervised"),
    "method": {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": 1}},
    "epochs": 1,
    "select": "last",
    "evaluate": False,
    "overrides": {"unsupervised": SMALL},
}


@pytest.fixture(scope="module")
def xray_sites(tmp_path_factory):
    """Site YAMLs of the tiny X-ray federation."""
    folder = tmp_path_factory.mktemp("xray_sites")
    for site in SITES:
        values = {"demo": "chest_xray_tiny", "device": "cpu", "threads": 1}
        values["privacy"] = {"allowed_extras": ["rsa", "mu", "sigma", "n"], "extras_min_images": 4}
        (folder / f"{site}.yaml").write_text(yaml.safe_dump(values))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory, xray_sites):
    """Return a function: settings of a job -> workspace of its run."""

    def run(name, **settings):
        folder = tmp_path_factory.mktemp(name)
        method = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}
        spec = {"name": name, "bundle": "cxr_classification", "overlays": ["demo"], "method": method, **settings}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDMED_SITE_CONFIGS", str(xray_sites))
            run_job(write_job(Job.of(spec), folder / "job"), folder / "ws")
        return folder / "ws"

    return run


@pytest.fixture(scope="module")
def classifier(run, tmp_path_factory):
    """(workspace, exported bundle) of a classifier that is not the starting model and has a temperature of 1.25."""
    small = {"batch_size": 4, "image_size": 48}
    settings = {"sites": SITES, "rounds": 2, "steps": 1, "overrides": dict.fromkeys(("supervised", "evaluate"), small)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedmed.training.calibration.fit_temperature", lambda *_: 1.25)
        workspace = run("hospital_study", **settings)
    out = tmp_path_factory.mktemp("exported") / "cxr_classification"
    return workspace, export_bundle(workspace, out, verify=True).out


@pytest.fixture(scope="module")
def encoder(run, tmp_path_factory):
    """(workspace, exported bundle) of a pre-training."""
    workspace = run("pretraining", **PRETRAINING, rounds=2)
    for line in read_finished(workspace).rounds:  # a site that failed would be missing from the card's numbers
        assert sorted(line["accepted"]) == sorted(PRETRAINING["sites"]), line
    made = export_bundle(workspace, tmp_path_factory.mktemp("encoder") / "cxr_classification", verify=True)
    return workspace, made


def described(folder):
    return json.loads((folder / "configs" / "metadata.json").read_text())


def card_of(folder):
    text = (folder / "docs" / "README.md").read_text()
    assert "{{" not in text and "None" not in text and "\n\n\n" not in text
    return text


# --- a classifier


def test_metadata_have_the_runs_classes_sizes_and_scores(classifier):
    workspace, bundle = classifier
    meta = described(bundle)
    image, pred = meta["network_data_format"]["inputs"]["image"], meta["network_data_format"]["outputs"]["pred"]
    assert image["spatial_shape"] == [48, 48]
    assert pred["num_channels"] == 3 and pred["spatial_shape"] == [1, 3]
    assert pred["channel_def"] == dict(zip("012", CLASSES, strict=True))
    result = json.loads((workspace / "server/simulate_job/fedmed/result.json").read_text())
    fed = meta["federation"]
    assert fed["score"]["name"] == "auroc" and fed["validation_auroc"] == result["best_score"]
    tests = sorted(row["auroc"] for row in result["test"].values())
    assert sorted(row["test_auroc"] for row in fed["sites"]) == tests
    assert meta["eval_metrics"] == {"mean_test_auroc_of_sites": pytest.approx(sum(tests) / 3)}
    by_score = {row["auroc"]: row for row in result["test"].values()}
    for row in fed["sites"]:
        of_site = by_score[row["test_auroc"]]
        assert row["test_auroc_low"] <= row["test_auroc"] <= row["test_auroc_high"]
        assert row["test_accuracy"] in [r["accuracy"] for r in result["test"].values()] and of_site["n_cases"]


def test_the_card_speaks_of_labels_and_intervals_not_of_masks(classifier):
    card = card_of(classifier[1])
    assert "a probability each: normal, consolidation, interstitial" in card and "2 sites with labels" in card
    assert "mask" not in card.lower() and "Dice" not in card and "infer_nifti" not in card
    assert "softmax(logits / 1.25)" in card and "calibrated by one temperature, 1.250" in card
    for site in SITES:
        assert site not in card and site not in json.dumps(described(classifier[1]))


def test_the_weights_keep_the_temperature_in_every_format(classifier):
    models = classifier[1] / "models"
    weights = torch.load(models / "model.pt", weights_only=True)
    assert weights["temperature"].tolist() == [1.25]
    script = torch.jit.load(str(models / "model.ts"))
    assert script.temperature.tolist() == [1.25] and script(torch.rand(2, 1, 48, 48)).shape == (2, 3)


def test_overlays_that_fit_are_left_and_sizes_are_gone(classifier):
    left = {path.stem for path in (classifier[1] / "configs").glob("*.yaml")}
    assert {"linear", "finetune", "pretrain", "evaluate"} < left and not {"demo", "small", "cpu"} & left
    assert yaml.safe_load((classifier[1] / "configs" / "inference.yaml").read_text())["classes"] == CLASSES


def test_a_stand_alone_training_of_it_starts_from_what_is_there(tmp_path):
    """The overlay finetune names models/pretrained.pt, which an exported classifier does not have."""
    bundle = Bundle("cxr_classification", ["demo", "finetune"])
    copy_parts(bundle.root, tmp_path)
    write_configs(exporter_of(bundle, Method()), tmp_path)
    made = ConfigParser.load_config_file(tmp_path / "configs" / "train.yaml")
    assert made["pretrained"].endswith("/model.pt'")
    assert made["label_fraction"] == 1.0


# --- a pre-training


def test_an_encoder_is_a_bundle_that_training_with_labels_starts_from(encoder):
    workspace, made = encoder
    models = {path.name for path in (made.out / "models").iterdir()}
    steps = " ".join(made.next_steps)
    assert "['configs/train.yaml', 'configs/linear.yaml']" in steps and "finetune.yaml" in steps
    assert "temporal" not in steps + card_of(made.out), "a bundle of radiographs has no such overlay"
    assert models == {"pretrained.pt", "encoder.ts"}
    weights = torch.load(made.out / "models" / "pretrained.pt", weights_only=True)
    saved = next(workspace.glob("server/simulate_job/app_*/FL_global_model.pt"))
    kept = torch.load(saved, weights_only=True)["model"]
    assert weights.keys() == kept.keys() and all(torch.equal(weights[name], kept[name]) for name in kept)
    assert any("features of a generated chest X-ray" in check and "equal" in check for check in made.checks)
    assert torch.jit.load(str(made.out / "models" / "encoder.ts"))(torch.rand(2, 1, 64, 64)).shape == (2, 128)


def test_configs_of_an_encoder_are_those_of_a_classifier(encoder):
    """The method stays an overlay; its learning rate is not that of a training with labels."""
    configs = encoder[1].out / "configs"
    train = yaml.safe_load((configs / "train.yaml").read_text())
    assert train["network_def"]["_target_"].endswith("ClassifierNet") and train["learning_rate"] == 0.01
    assert train["queue_size"] == 16 and train["image_size"] == 64
    assert {"pretrain", "linear", "finetune"} <= set(encoder[1].overlays)


def test_the_card_of_an_encoder_says_what_it_is(encoder):
    card, run = card_of(encoder[1].out), read_finished(encoder[0])
    assert "Images never left a site; statistics of their features (`mu`, `sigma` and `n`) did, in round 2." in card
    assert run.method.title == "FedMoCo" and run.method.card() in card
    last = described(encoder[1].out)["federation"]["last_round"]
    sent = [site["train_contrastive_accuracy"] for site in run.rounds[-1]["sites"].values()]
    assert last["train_contrastive_accuracy"] == pytest.approx(sum(sent) / 2)
    assert f"contrastive accuracy {sum(sent) / 2:.1%}" in card
    assert "AUROC" not in card and "| Site |" not in card and "checkpoint_tensors: ['^encoder" in card


def test_the_card_says_that_statistics_were_exchanged_only_where_the_rounds_say_so(encoder, opened):
    """The study asks for an exchange from round 2 on; it is another matter whether any site sent something."""
    run, store, exporter = opened(encoder[0])
    silent = [{**line, "extras": {site: {"rsa": 0.5} for site in line["extras"]}} for line in run.rounds]
    weights = complete_weights(run, store, exporter, "last")
    federation = provenance(replace(run, rounds=silent), store, exporter, weights, "last", None)
    assert federation["exchange"] == {"names": ["mu", "sigma", "n"], "once": False, "rounds": []}
    text = story(federation, exporter)
    assert "Images never left a site, and no values that the study asked for (`mu`, `sigma` and `n`) either." in text
    assert "mean and covariance" not in text and "round 2" not in text.partition("This is")[0]


def test_a_federation_fine_tunes_the_exported_encoder(encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_BUNDLES", str(encoder[1].out.parent))
    spec = {"name": "next", "bundle": "cxr_classification", "sites": SITES, "rounds": 1, "steps": 1}
    spec |= {"method": {"path": "fedmed.systems.fedmoco.method.Linear"}}
    spec |= {"checkpoint": "pretrained.pt", "checkpoint_tensors": ["^encoder\\."]}
    store = ModelStore(read_job(write_job(Job.of(spec), tmp_path / "job")), tmp_path)
    weights = torch.load(encoder[1].out / "models" / "pretrained.pt", weights_only=True)
    shared = [name for name in store.initial if name.startswith("encoder.")]
    assert shared and all(torch.equal(store.initial[name], weights[name]) for name in shared)
    assert store.initial["classifier.weight"].shape == (3, 128)


def test_an_encoder_whose_projection_stayed_at_the_sites_is_exported_without_it(run, tmp_path):
    method = {"path": "fedmed.systems.fedmoco.method.FedAvgMoCo"}
    settings = {**PRETRAINING, "method": method, "sharing": "projection"}
    made = export_bundle(run("private", **settings, rounds=1), tmp_path / "cxr_classification", verify=True)
    weights = torch.load(made.out / "models" / "pretrained.pt", weights_only=True)
    assert weights and all(name.startswith("encoder.") for name in weights)
    assert "go on pre-training" not in card_of(made.out) and any("features" in check for check in made.checks)


def test_an_encoder_that_computes_something_else_is_noticed(encoder, opened, tmp_path):
    exporter = opened(encoder[0])[2]
    copy = shutil.copytree(encoder[1].out, tmp_path / "cxr_classification")
    weights = torch.load(copy / "models" / "pretrained.pt", weights_only=True)
    other = {name: t + 0.05 if t.is_floating_point() else t for name, t in weights.items()}
    with pytest.raises(ExportError, match="features of a generated chest X-ray are others after the export"):
        verify(copy, copy / "configs" / "inference.yaml", exporter, other, None)


def test_a_bundle_that_says_its_pretraining_wrongly_is_refused(tmp_path, monkeypatch):
    root = shutil.copytree(SHIPPED_BUNDLES / "cxr_classification", tmp_path / "cxr_classification")
    path = root / "configs" / "federation.yaml"
    path.write_text(path.read_text().replace("{overlay: pretrain, encoder: encoder,", "{overlays: pretrain,"))
    monkeypatch.setenv("FEDMED_BUNDLES", str(tmp_path))
    with pytest.raises(Exception, match="'pretraining' is .* Example"):
        pretraining(Bundle("cxr_classification"))


# --- what is compared


def test_a_synthetic_image_fits_the_bundle(tmp_path):
    for name, kind in {"covid_ct_segmentation": "chest CT", "cxr_classification": "chest X-ray"}.items():
        bundle = SHIPPED_BUNDLES / name
        config = bundle / "configs" / "inference.yaml"
        path, what = phantom(tmp_path, described(bundle)["network_data_format"]["inputs"]["image"], config)
        assert what == kind
    with Image.open(path) as image:
        assert image.size[0] != image.size[1] and np.ptp(np.asarray(image)) > 10_000
    operation = {"spatial_shape": [64, 64], "modality": "endoscopy", "num_channels": 3}
    assert phantom(tmp_path, operation, config)[1] == "frame of an operation"
    with pytest.raises(ExportError, match="and chest CTs only; name an image: --verify IMAGE"):
        phantom(tmp_path, {**operation, "modality": "photograph"}, config)


ROW = {"image": "x.png", "predicted": "a", "probabilities": {"a": 0.6, "b": 0.4}, "error": ""}


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([ROW], None),
        ([{**ROW, "probabilities": {"a": 0.600002, "b": 0.4}}], "of 'a' is 0.600002 after the export, it was 0.600000"),
        ([{**ROW, "predicted": "b"}], "other images or classes"),
        ([{**ROW, "image": "y.png"}], "other images or classes"),
        (None, "after the export wrote no readable predictions.json"),
    ],
)
def test_probabilities_are_compared(tmp_path, after, words):
    for name, content in (("before", [ROW]), ("after", after)):
        (tmp_path / name).mkdir()
        if content:
            (tmp_path / name / "predictions.json").write_text(json.dumps(content))
    with pytest.raises(ExportError, match=words) if words else nullcontext():
        said = ClassificationExporter.compare(None, tmp_path / "before", tmp_path / "after")
        assert said == "the same class and equal probabilities"
