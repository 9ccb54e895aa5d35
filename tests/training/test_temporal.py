"""Temporal stages are trained and scored video by video; the rest of the network keeps every bit."""

import copy

import numpy as np
import pytest
import torch
from ignite.engine import Events
from torch import nn

from fedmed.data.video.clips import PreparedVideos
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.stored_video import StoredVideo
from fedmed.data.video.video_features import ShuffledVideos, VideoFeatures
from fedmed.errors import Aborted, DataError
from fedmed.systems.tecno.engine import StageCrossEntropy, TemporalEvaluator, TemporalTrainer
from fedmed.training.trainer import AbortHandler, NonFiniteLossHandler, ProgressHandler
from fedmed.training.video_recorder import PhaseRecorder, PhaseScore

from .conftest import assert_close, bits, equal

LENGTHS = (6, 9)
CLASSES = ["a", "b", "c"]


class Stages(nn.Module):
    """Two stages of a causal convolution each: (B, 4, T) -> (2, B, 3, T)."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 3, 3), nn.Conv1d(3, 3, 3)

    def forward(self, x):
        first = self.first(nn.functional.pad(x, (2, 0)))
        return torch.stack([first, self.second(nn.functional.pad(first.softmax(1), (2, 0)))])


class Network(nn.Module):
    """An encoder with BatchNorm, which counts its passes, and stages."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.stages, self.passes = Stages(), 0
        self.features.register_forward_hook(self._count)

    def _count(self, *_):
        self.passes += 1


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network()


@pytest.fixture
def prepared(tmp_path):
    """Two videos of random pixels on disk, as the store keeps them."""
    generator = np.random.default_rng(0)
    made = PreparedVideos([], FrameSettings((8, 8), 1), tmp_path / "cache")
    made.labels = []
    for number, length in enumerate(LENGTHS):
        path = tmp_path / f"{number:064d}.frames"
        generator.integers(0, 256, (length, 8, 8, 3), np.uint8).tofile(path)
        facts = {"frames": length, "height": 8, "width": 8, "dropped": [], "rate": 1.0}
        made.videos.append(StoredVideo(tmp_path / f"{number}.mp4", path, facts))
        made.labels.append(torch.arange(length) % 3)
    made.names = ["0.mp4", "1.mp4"]
    return made


@pytest.fixture
def videos(prepared, tmp_path):
    """Return a function: network -> its features of both videos."""
    return lambda network: VideoFeatures(prepared, network.features, tmp_path / "cache", batch_size=4)


@pytest.fixture
def trainer(videos):
    """Return a function: network -> a trainer of its stages."""

    def build(network, epochs=1, seed=0, **options):
        optimizer = torch.optim.Adam(network.stages.parameters(), lr=0.01)
        loader = ShuffledVideos(videos(network), seed)
        values = {"network": network, "optimizer": optimizer, "loss_function": StageCrossEntropy(), **options}
        return TemporalTrainer("cpu", epochs, loader, **values)

    return build


def test_it_is_the_plain_loop_over_videos(network, trainer, videos):
    """The same steps by hand: a video each, Adam, the mean over stages and frames."""
    twin, seen = copy.deepcopy(network), []
    engine = trainer(network, epochs=3)
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: seen.append(int(e.state.batch["video"][0])))
    engine.run()
    optimizer = torch.optim.Adam(twin.stages.parameters(), lr=0.01)
    batches = list(videos(twin))
    for number in seen:
        loss = torch.zeros(())
        for logits in twin.stages(batches[number]["image"]):
            loss = loss + nn.functional.cross_entropy(logits, batches[number]["label"]) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert sorted(seen) == [0, 0, 0, 1, 1, 1]
    assert_close(network, twin)


def test_the_encoder_keeps_every_bit_and_works_once(network, trainer):
    before, stages = bits(network.features), bits(network.stages)
    trainer(network, epochs=2).run()
    assert equal(network.features, before) and not equal(network.stages, stages)
    passes = network.passes
    assert passes == 2 + 3, "frames by four"
    trainer(network).run()
    assert network.passes == passes, "another round finds the features"


def test_samples_are_the_frames_that_were_processed(network, trainer):
    engine = trainer(network, epochs=2)
    engine.run()
    assert engine.samples == 2 * sum(LENGTHS)
    engine.run()
    assert engine.samples == 2 * sum(LENGTHS), "of the last run alone"
    short = trainer(network, epoch_length=1)
    short.run()
    assert short.samples in LENGTHS


def test_a_run_reports_its_loss(network, trainer):
    reports = []
    engine = trainer(network, epochs=2)
    ProgressHandler(lambda *report: reports.append(report), 1).attach(engine)
    NonFiniteLossHandler().attach(engine)
    engine.run()
    assert [step for step, _, _ in reports] == [1, 2, 3, 4] and all(r["loss"] > 0 for _, _, r in reports)


@pytest.mark.parametrize("scoring", [False, True])
def test_training_and_scoring_stop_while_features_are_computed(network, trainer, videos, scoring):
    engine = TemporalEvaluator("cpu", videos(network), network) if scoring else trainer(network)
    AbortHandler(lambda: network.passes == 3).attach(engine)
    with pytest.raises(Aborted):
        engine.run()
    assert network.passes == 3 and (scoring or engine.samples == 0)


def test_no_video_is_an_error(network, prepared, tmp_path):
    prepared.videos.clear()
    loader = ShuffledVideos(VideoFeatures(prepared, network.features, tmp_path), 0)
    with pytest.raises(DataError, match="no labelled videos to learn from; list some under 'training'"):
        TemporalTrainer("cpu", 1, loader, network=network, optimizer=None, loss_function=None)


def test_scores_are_those_of_the_last_stage_video_by_video(network, videos, prepared, tmp_path):
    recorder = PhaseRecorder(tmp_path / "out", prepared.names, CLASSES)
    engine = TemporalEvaluator("cpu", videos(network), network, key_val_metric={"val_f1": PhaseScore()})
    recorder.attach(engine)
    network.train()
    engine.run()
    result = recorder.finish()
    shares = []
    for batch in videos(network):
        with torch.no_grad():
            called = network.stages(batch["image"])[-1, 0].argmax(dim=0)
        shares.append(float((called == batch["label"][0]).float().mean()))
    assert result["accuracy_mean"] == pytest.approx(np.mean(shares))
    assert result["n_frames"] == sum(LENGTHS) and result["n_cases"] == 2
    assert engine.state.metrics["val_f1"] == pytest.approx(result["f1_mean"])
    assert network.training, "as it was"
