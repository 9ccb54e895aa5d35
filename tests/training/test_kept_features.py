"""Kept features and gates of frames: worked out by hand, and taken from an evaluator's network."""

import math

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from torch import nn

from fedmed.errors import FedMedError
from fedmed.training.kept_features import KeptFeatures, KeptGates, cosines, spread, two_dimensions
from fedmed.training.video_recorder import PhaseRecorder

from .conftest import run_frames

PHASES = ["preparation", "clipping"]


def test_frames_are_spread_evenly():
    assert spread(10, 4).tolist() == [1, 3, 6, 8], "the middles of four parts of 2.5 frames"
    assert spread(3, 4).tolist() == [0, 1, 2] and spread(0, 4).tolist() == []
    assert all((np.diff(spread(length, 64)) > 0).all() for length in range(1, 300))


def test_two_dimensions_by_hand():
    """A cross: 3 either way along (1, 1)/√2, 1 either way along (1, -1)/√2; variances 18 and 2 of 20."""
    one, other = np.array([1, 1]) / math.sqrt(2), np.array([1, -1]) / math.sqrt(2)
    rows = np.stack([3 * one, -3 * one, other, -other]) + [5, 7]
    points, explained = two_dimensions(rows)
    assert explained == pytest.approx([0.9, 0.1])
    assert np.abs(points) == pytest.approx(np.array([[3, 0], [3, 0], [0, 1], [0, 1]]), abs=1e-6)
    assert points[0, 0] == -points[1, 0] and points[2, 1] == -points[3, 1]
    for sign in (1, -1):
        points, _ = two_dimensions(sign * np.array([[0.0, 0], [0, 0], [3, 0]]))
        assert points[:, 0] == pytest.approx([-1, -1, 2]), "the farthest row is on the positive side"


@pytest.mark.parametrize("rows", [np.ones((4, 3)), np.ones((1, 3)), np.array([[1.0], [2.0]])])
def test_without_two_directions_there_is_a_picture_too(rows):
    points, explained = two_dimensions(rows)
    assert points.shape == (len(rows), 2) and np.isfinite(points).all() and explained[1] == 0
    assert explained[0] == (1 if len(np.unique(rows)) > 1 else 0)


def test_cosines_by_hand():
    result = cosines([[1, 0], [3, 4], [0, 0]], [[2, 0], [0, 5]])
    assert result == pytest.approx(np.array([[1, 0], [0.6, 0.8], [0, 0]]))


class Net(nn.Module):
    """Features that are the frames themselves, and a classifier."""

    def __init__(self):
        super().__init__()
        self.features, self.classifier = nn.Identity(), nn.Linear(3, 2)

    def forward(self, x):
        return self.classifier(self.features(x))


def evaluated(recorder, lengths=(9, 5)):
    """Run a recorder; return the frames of each video, (T, 3), and the network."""
    network, rng = Net(), np.random.default_rng(0)
    images = [rng.normal(size=(length, 3)).astype(np.float32) for length in lengths]
    videos = [((np.arange(len(frames)) > 2).astype(np.int64), frames) for frames in images]
    run_frames(videos, recorder.attach, size=4, network=network)
    return [torch.from_numpy(frames) for frames in images], network


def test_a_recorder_writes_a_picture_of_features_and_sends_nothing_of_it(tmp_path):
    recorder = PhaseRecorder(tmp_path, ["a", "b"], PHASES, KeptFeatures("classifier", frames=4))
    frames, network = evaluated(recorder)
    plain = PhaseRecorder(tmp_path / "plain", ["a", "b"], PHASES)
    sent = recorder.finish()
    result = np.load(tmp_path / "features.npz")
    kept = [frames[0][[1, 3, 5, 7]], frames[1][[0, 1, 3, 4]]]
    assert result["videos"].tolist() == [0] * 4 + [1] * 4 and result["times"].tolist() == [1, 3, 5, 7, 0, 1, 3, 4]
    assert result["phases"].tolist() == [0, 1, 1, 1, 0, 0, 1, 1] and result["classes"].tolist() == PHASES
    assert result["points"] == pytest.approx(two_dimensions(torch.cat(kept).numpy())[0])
    assert result["alignment"] == pytest.approx(cosines(*kept))
    assert set(result) == {"points", "explained", "videos", "phases", "times", "alignment", "classes"}, (
        "no feature itself"
    )
    evaluated(plain)
    assert set(sent) == set(plain.finish()) and not (tmp_path / "plain/features.npz").exists()
    assert not network.classifier._forward_pre_hooks, "the network is as it was"


def test_one_video_has_nothing_to_be_aligned_with(tmp_path):
    recorder = PhaseRecorder(tmp_path, ["a"], PHASES, KeptFeatures("classifier"))
    evaluated(recorder, lengths=(6,))
    recorder.finish()
    assert "alignment" not in np.load(tmp_path / "features.npz")


def test_a_second_run_starts_anew(tmp_path):
    recorder = PhaseRecorder(tmp_path, ["a", "b"], PHASES, KeptFeatures("classifier"))
    evaluated(recorder)
    evaluated(recorder)
    recorder.finish()
    assert len(np.load(tmp_path / "features.npz")["points"]) == 14


def test_a_wrong_layer_is_named(tmp_path):
    with pytest.raises(FedMedError, match="Net has no layer 'head'"):
        evaluated(PhaseRecorder(tmp_path, ["a", "b"], PHASES, KeptFeatures("head")))
    with pytest.raises(FedMedError, match="frames is 1; use 2 or more"):
        KeptFeatures("classifier", frames=1)
    with pytest.raises(FedMedError, match="layer 'classifier' was not given one row"):
        KeptFeatures("classifier").of_batch()


class Gated(nn.Module):
    """A layer whose output are the gates."""

    def __init__(self):
        super().__init__()
        self.gate, self.unused, self.wide = nn.Sigmoid(), nn.Identity(), nn.Identity()

    def forward(self, x):
        return self.wide(x[:, :, None]) * self.gate(x)[:, :, None]


def gated(kept, batches):
    network = Gated()
    engine = Engine(lambda _, batch: network(batch))
    engine.network = network
    kept.attach(engine)
    engine.run(batches)
    return network


def test_means_are_over_frames_whatever_the_batches():
    frames = torch.tensor([[0.0, 1.0], [2.0, -1.0], [1.0, 0.5]])
    gates = torch.sigmoid(frames.double())
    for sizes in ([3], [2, 1], [1, 1, 1]):
        kept = KeptGates("gate")
        network = gated(kept, list(frames.split(sizes)))
        result = kept.content()
        assert np.allclose(result["mean"], gates.mean(0)) and int(result["frames"]) == 3
        assert np.allclose(result["spread"], gates.std(0, correction=0), atol=1e-6)
        assert not network.gate._forward_hooks, "nothing stays on the network"


def test_a_second_run_forgets_the_gates_of_the_first():
    kept = KeptGates("gate")
    gated(kept, [torch.full((2, 2), 9.0)])
    gated(kept, [torch.zeros(1, 2)])
    assert kept.content()["mean"].tolist() == [0.5, 0.5] and kept.content()["frames"] == 1


def test_a_layer_without_gates_is_one_clear_error():
    with pytest.raises(FedMedError, match="Gated has no layer 'selection'"):
        gated(KeptGates("selection"), [torch.zeros(1, 2)])
    unused = KeptGates("unused")
    gated(unused, [torch.zeros(1, 2)])
    with pytest.raises(FedMedError, match="the network has not used its layer 'unused'"):
        unused.content()
    with pytest.raises(FedMedError, match=r"layer 'wide' gives \(1, 2, 1\)"):
        gated(KeptGates("wide"), [torch.zeros(1, 2)])
