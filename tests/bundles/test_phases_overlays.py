"""The overlays of the bundle for phases that train beside sites without labels, and at these."""

import pytest
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.bundles.contract import Use, faults
from fedmed.errors import BundleError, DataError
from fedmed.systems.fedcy.engine import CycleEngine, GuidedEngine
from fedmed.training.video_frames import ClipBatches
from fedmed_demo import demo_site
from tests.bundles.one_bundle import OneBundle

NAME = "surgical_phase_classification"
SMALL = {"image_size": [24, 32], "frame_rate": 2.0, "max_epochs": 1}


@pytest.mark.parametrize(("overlay", "role"), [("guided", "supervised"), ("cycle", "unsupervised")])
def test_they_define_what_a_federation_needs(overlay, role):
    assert faults(Bundle(NAME, ["demo", overlay]), Use(role)) == []


def test_a_hospital_without_labels(build_phases):
    parser = build_phases("cycle", clip_size=8, cycle_weight=2.0, max_grad_norm=1.0, statistics_momentum=0.5)
    trainer = parsed(parser, "train#trainer")
    assert type(trainer) is CycleEngine and type(trainer.prepare_batch) is ClipBatches
    assert (trainer.cycle_weight, trainer.max_grad_norm, trainer.statistics_momentum) == (2.0, 1.0, 0.5)
    clips = len(parsed(parser, "train#data"))
    assert clips % 2 == 0
    (batch, *_), seen = list(parsed(parser, "train#dataloader")), set()
    assert batch["image"].shape == (2, 8, 3, 24, 32) and "labels" not in batch
    for batch in parsed(parser, "train#dataloader"):
        for video, times in zip(batch["video"].tolist(), batch["time"].tolist(), strict=True):
            assert times == sorted(times)
            frames = {(video, time) for time in times}
            assert not frames & seen
            seen |= frames
    trainer.run()
    assert trainer.samples == clips * 8 and torch.isfinite(trainer.state.output["loss"])


@pytest.mark.parametrize(
    "values",
    [
        {"clip_strategy": "stride", "clip_step": 2, "single_clip": True},
        {"clip_strategy": "random"},
        {"frame_index": "frame_time", "similarity": "l2_scaled"},
        {"distinct_videos": True, "batch_size": 2},
        {"variance_floor": 1e-3, "cycle_temperature": 0.5, "variance_weight": 0.01},
    ],
)
def test_its_options(build_phases, values):
    parser = build_phases("cycle", clip_size=4, **values)
    trainer = parsed(parser, "train#trainer")
    trainer.run()
    assert torch.isfinite(trainer.state.output["loss"])
    loss = trainer.cycle_loss
    assert (loss.index, loss.similarity) == (parser["frame_index"], parser["similarity"])
    assert (loss.temperature, loss.variance_weight) == (parser["cycle_temperature"], parser["variance_weight"])
    assert loss.floor == parser["variance_floor"]


def test_videos_that_are_all_shorter_than_a_clip(build_phases):
    with pytest.raises((DataError, BundleError), match="less than 2 clips of 500 usable frames"):
        parsed(build_phases("cycle", clip_size=500), "train#trainer")


def test_a_hospital_with_labels(build_phases):
    parser = build_phases("guided", site="lap_harbor", batch_size=16, contrast_weight=2.0, contrast_temperature=0.3)
    trainer = parsed(parser, "train#trainer")
    assert type(trainer) is GuidedEngine and type(trainer.loss_function) is torch.nn.CrossEntropyLoss
    assert (trainer.contrast_weight, trainer.contrast_temperature, trainer.max_grad_norm) == (2.0, 0.3, None)
    trainer.run()
    assert trainer.samples == 16 * trainer.state.iteration and torch.isfinite(trainer.state.output["label_contrast"])


def test_training_without_labels_runs_alone(fedmed_home, tmp_path):
    """As a MONAI bundle, without a federation; the last model is kept."""
    root = demo_site("lap_phases_tiny", "lap_bay", fedmed_home)
    places = {"ckpt_dir": str(tmp_path), "output_dir": str(tmp_path), "cache_dir": str(tmp_path / "cache")}
    bundle = OneBundle(NAME)
    facts = {"bundle_root": str(bundle.root), "dataset_dir": str(root), "device": "cpu", "clip_size": 8}
    assert bundle.train("cycle", **facts, **places, **SMALL).parent == tmp_path
