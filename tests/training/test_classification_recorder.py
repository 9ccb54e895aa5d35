import copy
import logging
import math

import numpy as np
import pytest
import torch
from monai.data import DataLoader, MetaTensor
from monai.engines import SupervisedEvaluator

from fedmed.errors import DataError, FedMedError
from fedmed.training.auroc import accuracy_interval, macro_auroc, macro_auroc_interval
from fedmed.training.calibration import expected_calibration_error
from fedmed.training.classification_recorder import ClassificationRecorder

from .conftest import expected_of, shown, table

CLASSES = ["normal", "bacteria", "virus"]
NAMES = [f"case{n:02}" for n in range(16)]
LAYER = "encoder.2"  # of the tiny network: the ReLU


def run(folder, network, batches, names=NAMES, classes=CLASSES, decollate=True, **changes):
    cases = [dict(zip(batch, case, strict=True)) for batch in batches for case in zip(*batch.values(), strict=True)]
    evaluator = SupervisedEvaluator("cpu", DataLoader(cases, batch_size=5), network, decollate=decollate)
    recorder = ClassificationRecorder(folder, names, classes, **{"target_layer": LAYER, **changes})
    recorder.attach(evaluator)
    evaluator.run()
    return recorder


@pytest.mark.parametrize("decollate", [True, False])
def test_scores_and_files(tmp_path, classifier, pictures, decollate):
    classifier.temperature.fill_(0.2)  # what the recorder writes is calibrated
    metrics = run(tmp_path / "evaluation", classifier, pictures, decollate=decollate, seed=3).finish()
    values, labels = expected_of(classifier, pictures)
    squares = ((np.asarray(values) - np.eye(3)[np.asarray(labels)]) ** 2).sum()
    right = int((values.argmax(1) == labels).sum())
    low, high = macro_auroc_interval(values, labels, seed=3)
    accuracy_low, accuracy_high = accuracy_interval(right, 16)
    assert metrics == pytest.approx(
        {
            **{"auroc": macro_auroc(values, labels), "auroc_low": low, "auroc_high": high},
            **{"accuracy": right / 16, "accuracy_low": accuracy_low, "accuracy_high": accuracy_high, "n_cases": 16},
            **{"ece": expected_calibration_error(values, labels), "brier": squares / 16},
        }
    )
    assert all(type(value) in (float, int) for value in metrics.values())
    rows = table(tmp_path / "evaluation/cases.csv")
    assert list(rows[0]) == ["case", "label", "p_normal", "p_bacteria", "p_virus"]
    assert [row["case"] for row in rows] == NAMES
    assert [row["label"] for row in rows] == [CLASSES[label] for label in labels]
    written = [[float(row[f"p_{name}"]) for name in CLASSES] for row in rows]
    assert np.allclose(written, values, atol=1e-6)
    result = {path.name for path in (tmp_path / "evaluation").iterdir()}
    assert result == {"cases.csv", "best.npz", "median.npz", "worst.npz"}


def test_best_is_surely_right_and_worst_is_surely_wrong(tmp_path, given):
    logits = [[1, 0, 0], [4, 0, 0], [0, 3, 0], [0, 5, 0], [0, 0, 2]]
    labels = [0, 0, 0, 1, 2]  # right, right, wrong by 3, right by 5, right
    names = ["little", "more", "wrong", "surely", "some"]
    run(tmp_path, given, shown(logits, labels), names, target_layer="layer").finish()
    pictures = {kind: np.load(tmp_path / f"{kind}.npz", allow_pickle=False) for kind in ("best", "median", "worst")}
    assert [str(picture["case"]) for picture in pictures.values()] == ["surely", "some", "wrong"]
    worst = pictures["worst"]
    assert str(worst["label"]) == "normal" and worst["classes"].tolist() == CLASSES
    assert worst["probabilities"] == pytest.approx(torch.softmax(torch.tensor([0.0, 3, 0]), 0).numpy())


def test_without_a_wrong_case_the_worst_is_the_least_certain(tmp_path, given):
    run(tmp_path, given, shown([[4, 0, 0], [0, 1, 0]], [0, 1]), ["a", "b"], target_layer="layer").finish()
    assert str(np.load(tmp_path / "worst.npz")["case"]) == "b"


def test_one_class_called_for_every_image_is_told_at_the_site(tmp_path, caplog, given):
    with caplog.at_level(logging.WARNING, "fedmed.site"):
        for logits in ([[4, 0, 0], [3, 1, 0], [2, 0, 1]], [[4, 0, 0], [0, 1, 0], [2, 0, 1]]):
            run(tmp_path, given, shown(logits, [0, 1, 2]), ["a", "b", "c"], target_layer="layer").finish()
    assert caplog.messages == ["the model calls all 3 test images 'normal', which 1 of them are"]


def test_a_picture_is_the_image_with_the_heat_of_the_called_class(tmp_path, classifier, pictures):
    run(tmp_path, classifier, pictures).finish()
    images = torch.cat([batch["image"] for batch in pictures])
    for kind in ("best", "median", "worst"):
        with np.load(tmp_path / f"{kind}.npz", allow_pickle=False) as picture:
            place = NAMES.index(str(picture["case"]))
            assert picture["image"].dtype == picture["heat"].dtype == np.float32
            assert np.array_equal(picture["image"], images[place, 0].clamp(0, 1).numpy())
            assert picture["heat"].shape == (8, 8)
            assert picture["heat"].min() >= 0 and picture["heat"].max() in (0, 1)


def test_evaluation_leaves_the_network_as_it_was(tmp_path, classifier, pictures):
    classifier.encoder.requires_grad_(False)  # of a linear probe
    before = copy.deepcopy(classifier.state_dict())
    run(tmp_path, classifier, pictures).finish()
    after = classifier.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(parameter.grad is None for parameter in classifier.parameters())
    assert all(not module._forward_hooks and not module._backward_hooks for module in classifier.modules())
    assert np.load(tmp_path / "best.npz")["heat"].max() in (0, 1)


def test_metadata_of_images_does_not_disturb(tmp_path, classifier, pictures):
    batches = [{"image": MetaTensor(b["image"]), "label": b["label"]} for b in pictures]
    assert run(tmp_path, classifier, batches).finish()["n_cases"] == 16


def test_a_class_without_cases_is_left_out_and_that_is_said(tmp_path, caplog, given):
    logits, labels = [[3, 0, 1], [1, 0, 0], [1, 2, 0], [2, 1, 0]], [0, 0, 1, 1]
    with caplog.at_level(logging.WARNING, "fedmed.site"):
        metrics = run(tmp_path, given, shown(logits, labels), list("abcd"), target_layer="layer").finish()
    values = torch.softmax(torch.tensor(logits, dtype=torch.float64), 1)
    assert metrics["auroc"] == pytest.approx(macro_auroc(values, np.array(labels)))
    assert "no test case is of the class 'virus'; the AUROC leaves it out" in caplog.text


@pytest.mark.parametrize("cases", [1, 3])
def test_cases_of_one_class_have_no_auroc(tmp_path, caplog, cases, given):
    with caplog.at_level(logging.WARNING, "fedmed.site"):
        batches = shown([[0, 2, 0]] * cases, [1] * cases)
        metrics = run(tmp_path, given, batches, list("abc")[:cases], target_layer="layer").finish()
    assert set(metrics) == {"accuracy", "accuracy_low", "accuracy_high", "ece", "brier", "n_cases"}
    assert metrics["accuracy"] == 1 and all(math.isfinite(value) for value in metrics.values())
    assert "there is no AUROC" in caplog.text
    assert all((tmp_path / f"{kind}.npz").is_file() for kind in ("best", "median", "worst"))


def test_a_second_run_replaces_the_first(tmp_path, classifier, pictures):
    recorder = run(tmp_path, classifier, pictures)
    first = recorder.finish()
    recorder.engine.run()
    assert recorder.finish() == first and len(table(tmp_path / "cases.csv")) == 16


def test_probabilities_that_are_not_finite(tmp_path, given):
    with pytest.raises(DataError, match="NaN or infinite for 1 of 2 cases, first for case number 1; use another"):
        run(tmp_path, given, shown([[1, 0, 0], [0, math.nan, 0]], [0, 1]), ["a", "b"], target_layer="layer").finish()
    assert not list(tmp_path.iterdir())


def test_errors(tmp_path, classifier, pictures):
    with pytest.raises(DataError, match="saw 0 of 0 cases.*with its class under 'testing'"):
        ClassificationRecorder(tmp_path, [], CLASSES).finish()
    with pytest.raises(DataError, match="saw 16 of 17"):
        run(tmp_path, classifier, pictures, [*NAMES, "more"]).finish()
    with pytest.raises(FedMedError, match="3 outputs and there are 2 classes"):
        run(tmp_path, classifier, pictures, classes=["a", "b"]).finish()
    with pytest.raises(FedMedError, match="has no layer 'encoder.layer4'; name one in target_layer"):
        run(tmp_path, classifier, pictures, target_layer="encoder.layer4").finish()
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        run(tmp_path / "file", classifier, pictures).finish()
