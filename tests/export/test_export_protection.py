"""Model card on differential privacy: never more than the sites told."""

import json
from types import SimpleNamespace

import pytest

from fedmed.export.card import limits, protection
from fedmed.export.weights_origin import _protection
from fedmed.kinds.segmentation_3d import Segmentation3D

KIND = Segmentation3D()


@pytest.fixture
def federation_of_a_run(exported_bundle):
    return json.loads((exported_bundle / "configs" / "metadata.json").read_text())["federation"]


def words(*lines):
    return protection(_protection(SimpleNamespace(rounds=[{"sites": line} for line in lines])))


def test_without_noise_nothing_is_promised(federation_of_a_run):
    assert words({"a": {"train_loss": 1.0}}).startswith("No site reported any noise: nothing is promised")
    assert words({"a": {"clip_norm": 1.0}}).startswith("1 site clipped the updates, none added noise: nothing is")
    assert any(limit.startswith("No site reported any noise") for limit in limits(federation_of_a_run, KIND))
    old = {key: value for key, value in federation_of_a_run.items() if key != "protection"}  # exported before
    assert limits(old, KIND) == limits(federation_of_a_run, KIND)


def test_the_largest_epsilon_is_told_and_what_it_means():
    noise = {"clip_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    text = words({"a": {**noise, "epsilon": 3.0}}, {"a": {**noise, "epsilon": 4.5}, "b": {**noise, "epsilon": 4.0}})
    assert text.startswith("2 sites added Gaussian noise to clipped updates, at most ε = 4.5 at δ = 0.00001.")
    assert "not single patients; of other sites nothing is promised" in text
    assert words({"a": {"clip_norm": 1.0, "noise_multiplier": 2.0}}).startswith(
        "1 site added Gaussian noise to clipped updates."
    )
