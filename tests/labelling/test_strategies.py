"""The strategies of the label app with stand-ins for MONAI Label's interfaces; tests/e2e has the real ones."""

import importlib.util
import json
import math
import sys
import types
from pathlib import Path

import pytest
import torch
import yaml

from fedmed.errors import FedMedError
from fedmed.labelling.views import DEFAULTS, trained_augmentation

APP = Path(__file__).resolve().parents[2] / "monailabel_app" / "fedmed_label"


class Strategy:
    def __init__(self, description):
        self.description = description


@pytest.fixture(scope="module")
def module():
    """The module strategies.py with stand-ins for MONAI Label."""
    names = ("monailabel", "monailabel.interfaces", "monailabel.interfaces.tasks")
    fakes = {name: types.ModuleType(name) for name in names}
    fakes |= {name: types.ModuleType(name) for name in (f"{names[1]}.datastore", f"{names[2]}.strategy")}
    fakes["monailabel.interfaces.datastore"].Datastore = object
    fakes["monailabel.interfaces.tasks.strategy"].Strategy = Strategy
    with pytest.MonkeyPatch.context() as patch:
        for name, fake in fakes.items():
            patch.setitem(sys.modules, name, fake)
        spec = importlib.util.spec_from_file_location("fedmed_test_strategies", APP / "strategies.py")
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    return loaded


class Task:
    """Images are files that hold one brightness; the model is unsure about those near 0.5."""

    version = "0.2.0"
    together = False

    def __init__(self, bundle):
        self.bundle_path, self.inferred = str(bundle), []
        (bundle / "configs").mkdir(parents=True)
        (bundle / "model.pt").write_text("weights")

    def get_path(self):
        return f"{self.bundle_path}/model.pt"

    def probabilities(self, image, view=None):
        self.inferred.append((Path(image).name, view is not None))
        batch = torch.full((1, 1, 8, 8, 8), float(Path(image).read_text()))
        p = (view(batch) if view else batch)[0]
        return torch.cat([1 - p, p]).clamp(0, 1)  # a view may leave the range of probabilities


class Datastore:
    def __init__(self, folder, brightness):
        self.folder, self.infos, self.labelled = folder, {name: {} for name in brightness}, set()
        for name, value in brightness.items():
            (folder / name).write_text(str(value))

    def get_unlabeled_images(self, label_tag=None, labels=None):
        return [name for name in self.infos if name not in self.labelled]

    def get_image_uri(self, image):
        return str(self.folder / image)

    def get_image_info(self, image):
        return dict(self.infos[image])

    def update_image_info(self, image, info):
        self.infos[image].update(info)


@pytest.fixture
def task(tmp_path):
    return Task(tmp_path / "bundle")


@pytest.fixture
def datastore(tmp_path):
    (tmp_path / "scans").mkdir()
    return Datastore(tmp_path / "scans", {"sure": 0.01, "unsure": 0.45, "bright": 0.99, "so_so": 0.2})


def test_the_most_uncertain_image_without_a_label_is_next(module, task, datastore):
    strategy = module.strategies({"m": task})["uncertainty"]
    answer = strategy({"strategy": "uncertainty", "client_id": "x"}, datastore)
    assert (answer["id"], answer["rank"], answer["scored"], answer["waiting"]) == ("unsure", 1, 4, 0)
    assert answer["model"] == "m 0.2.0" and answer["score"] == pytest.approx(0.9928, abs=1e-3)
    datastore.labelled.add("unsure")
    assert strategy({}, datastore)["id"] == "so_so" and len(task.inferred) == 4
    datastore.labelled |= set(datastore.infos)
    assert strategy({}, datastore) is None  # MONAI Label answers {}


def test_labels_that_hold_together_are_each_as_unsure_as_they_are_alone(module, task, datastore, monkeypatch):
    """A tool that is hardly ever seen does not make the model sure, though the others' probabilities sum to 1."""
    alone = {"unsure": [0.5, 0.5, 0.0], "so_so": [0.6, 0.6, 0.6], "sure": [0.0, 1.0, 0.0], "bright": [0.0, 0.0, 0.0]}
    monkeypatch.setattr(task, "probabilities", lambda image, view=None: torch.tensor(alone[Path(image).name]))
    assert module.strategies({"m": task})["uncertainty"]({}, datastore)["id"] == "so_so"
    for together, score in ((False, math.log(2) / math.log(3)), (True, 2 / 3)):
        monkeypatch.setattr(task, "together", together)
        for name in datastore.infos:
            datastore.infos[name] = {}
        module.strategies({"m": task})["uncertainty"]({}, datastore)
        assert datastore.infos["unsure"]["fedmed"]["uncertainty"]["score"] == pytest.approx(score)


def test_disagreement_uses_the_same_views_for_every_image_and_request(module, task, datastore):
    strategy = module.strategies({"m": task})["disagreement"]
    first = strategy({"views": 3}, datastore)
    assert sorted(task.inferred) == sorted((n, v) for n in datastore.infos for v in (False, True, True, True))
    scores = {name: info["fedmed"]["disagreement"]["score"] for name, info in datastore.infos.items()}
    for name in datastore.infos:
        datastore.infos[name] = {}
    assert module.strategies({"m": task})["disagreement"]({"views": 3}, datastore) == first
    assert scores == {name: info["fedmed"]["disagreement"]["score"] for name, info in datastore.infos.items()}
    assert strategy({}, datastore)["score"] != first["score"]  # fewer views are another score
    assert all(0 <= score <= 1 for score in scores.values()) and scores["so_so"] > scores["bright"]


def test_the_view_is_the_augmentation_of_the_bundle(module, task, datastore):
    settings = {"augmentation": "gauss_0.1", "shift_level": 0.3, "labeled": {"x": 1}}
    config = Path(task.bundle_path) / "configs/consistency.yaml"
    config.write_text(yaml.safe_dump(settings))
    known = {"augmentation": "gauss_0.1", "shift_level": 0.3, "cutout_size": [20, 20, 3]}
    assert trained_augmentation(Path(task.bundle_path)) == known
    config.with_name("metadata.json").write_text(
        '{"federation": {"methods": {"unsupervised": {"overrides": {"augmentation": ["fix_0.1"], "steps": 3}}}}}'
    )
    assert trained_augmentation(Path(task.bundle_path))["augmentation"] == ["fix_0.1"]
    task.inferred.clear()
    assert module.strategies({"m": task})["disagreement"]({}, datastore)["score"] > 0
    assert all(view for _, view in task.inferred)  # the pseudo-label of FixMatch has a view of its own
    config.write_text("augmentation: sharpen")
    config.with_name("metadata.json").unlink()
    with pytest.raises(FedMedError, match="'sharpen' is unknown.*correct 'augmentation'"):
        module.strategies({"m": task})["disagreement"]({}, datastore)


def test_of_several_overlays_the_one_that_the_sites_had_counts(task):
    configs = Path(task.bundle_path) / "configs"
    for name, level in (("first", 0.2), ("second", 0.3)):
        (configs / f"{name}.yaml").write_text(yaml.safe_dump({"augmentation": "scale_shift", "shift_level": level}))
    (configs / "third.yaml").write_text("shift_level: 0.9")
    roles = {"unsupervised": {"overlays": ["second"], "overrides": {}}, "supervised": {"overlays": ["third"]}}
    for overlays, level in ((["second"], 0.3), (["second", "first"], 0.2), (["first", "third"], 0.9)):
        roles["unsupervised"]["overlays"] = overlays
        (configs / "metadata.json").write_text(json.dumps({"federation": {"methods": roles}}))
        assert trained_augmentation(Path(task.bundle_path))["shift_level"] == level


@pytest.mark.parametrize("text", [None, "augmentation: identity", "augmentation: [identity]"])
def test_without_settings_that_change_an_image_the_paper_s_augmentation_is_used(module, task, datastore, text):
    if text:
        (Path(task.bundle_path) / "configs/unlabelled.yaml").write_text(text)
    assert trained_augmentation(Path(task.bundle_path)) == DEFAULTS
    assert module.strategies({"m": task})["disagreement"]({}, datastore)["score"] > 0


def test_the_request_names_model_and_limits(module, task, datastore, tmp_path):
    both = module.strategies({"m": task, "n": Task(tmp_path / "other"), "scribbles": object()})
    assert both["uncertainty"]({"model": "n"}, datastore)["model"] == "n 0.2.0" and not task.inferred
    assert both["uncertainty"]({"max_samples": 1}, datastore)["waiting"] == 3
    for bad, words in (
        ({"model": "x"}, "no model 'x' is served; use one of m, n"),
        ({"max_samples": "few"}, "'max_samples' is 'few'; give a number"),
        ({"views": 0}, "'views' is 0"),
    ):
        with pytest.raises(FedMedError, match=words):
            both["disagreement"](bad, datastore)


def test_without_a_model_there_are_no_strategies(module):
    assert module.strategies({"scribbles": object()}) == {}
