"""Boxes in synthetic frames, and how many of them a mask hits."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fedmed.errors import DataError
from fedmed.jobs.app_configs import files
from research.runner.inference_speed import WARM_UP, SpeedStep
from research.runner.score_sections import ScoreSections
from research.runner.table_claim import Evidence
from research.runner.table_layout import ShownTable
from research.runner.tip_boxes import boxed_frames, hits, least_saturated, moved, scattered
from research.runner.tip_hits import TipStep, called

from .shipped_tables import data_of, place_of, table_of

BOXES = [[7, 0, 1.0, 0.0, 0.0, 0.5, 0.5], [9, 0, 1.0, 0.0, 0.0, 0.5, 0.5], [94, 3, 1.0, 0.5, 0.25, 0.6, 0.5]]
NONE = [[94, -1, 1.0, -1, -1, -1, -1]]


@pytest.fixture
def folder(tmp_path):
    """Two frames of 8 x 10 pixels with boxes, one without; the left upper quarter of the first is grey."""
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/VID1.json").write_text(json.dumps({"annotations": {"3": BOXES, "7": BOXES[2:], "9": NONE}}))
    (tmp_path / "videos/VID1").mkdir(parents=True)
    for second in (3, 7, 9):
        image = np.zeros((8, 10, 3), np.uint8)
        image[...] = (200, 40, 40)
        image[:4, :5] = 120
        Image.fromarray(image).save(tmp_path / f"videos/VID1/{second:06d}.jpg", quality=100, subsampling=0)
    return tmp_path


def test_boxes_are_read_once_each_and_end_at_the_border(folder):
    first, second = boxed_frames(folder, "VID1")
    assert (first.second, second.second) == (3, 7) and first.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.5, 0.25, 1, 0.75]]
    with pytest.raises(DataError, match=r"VID2.json: the boxes cannot be read .* set FEDMED_DATA"):
        boxed_frames(folder, "VID2")
    (folder / "videos/VID1/000007.jpg").unlink()
    with pytest.raises(DataError, match="has no picture of second 7"):
        boxed_frames(folder, "VID1")
    (folder / "labels/VID1.json").write_text(json.dumps({"annotations": {"3": [[7, 0, 1.0, 0.2, 0.2, 0.0, 0.1]]}}))
    with pytest.raises(DataError, match="a box has no width or no height"):
        boxed_frames(folder, "VID1")


def test_a_box_is_hit_by_a_quarter_of_its_pixels():
    boxes = np.array([[0, 0, 0.5, 0.5], [0.5, 0.25, 1, 0.75], [0.999, 0.999, 1, 1]])
    mask = np.zeros((8, 10), bool)
    assert hits(mask, boxes) == 0
    mask[0, :5] = True  # 5 of 4 x 5 pixels
    assert hits(mask, boxes) == 1 and hits(mask, boxes, 0.26) == 0
    mask[7, 9] = True  # the smallest box is one pixel
    assert hits(mask, boxes) == 2
    assert hits(np.ones((8, 10), bool), boxes) == 3


def test_other_ways_choose_as_many_pixels():
    rng = np.random.default_rng(0)
    mask = np.zeros((8, 10), bool)
    mask[1:3, 2:6] = True
    image = rng.integers(0, 256, (8, 10, 3)).astype(np.uint8)
    image[6, :8] = 90
    for chosen in (scattered(mask, rng), moved(mask, rng), least_saturated(mask, image)):
        assert chosen.shape == mask.shape and chosen.sum() == 8
    assert np.array_equal(np.argwhere(least_saturated(mask, image)), [[6, x] for x in range(8)])
    assert scattered(np.zeros((2, 2), bool), rng).sum() == 0 and least_saturated(np.ones((8, 10), bool), image).all()


class Grey(nn.Module):
    """Calls an instrument where red and blue are alike."""

    def forward(self, x):
        grey = (x[:, 0] - x[:, 2]).abs() < 0.1
        return torch.stack([~grey, grey], dim=1).float()


def test_a_link_counts_hits_of_every_way_and_their_shares_are_shown(folder, monkeypatch, made_step):
    made = SimpleNamespace(last=Grey, size=(8, 10))
    monkeypatch.setattr("research.runner.tip_hits.JobNetwork", lambda step: made)
    step = TipStep(made_step, folder / "tips.csv", folder, ("VID1",), 0.25)
    assert step.missing()
    step.make()
    assert not step.missing()
    scores = step.scores()
    values = dict(zip(scores["metric"].astype(str), scores["value"], strict=True))
    assert values["boxes"] == 3 and values["hit_model"] == pytest.approx(1 / 3) == values["hit_saturation"]
    assert values["called"] == pytest.approx(0.25) and set(scores["site"]) == {"VID1"}
    assert called(Grey(), np.full((2, 2, 3), 9, np.uint8)).all()
    table = table_of("fedst_tips")
    evidence = Evidence(scores.assign(arm="FedAvg"), table.scores, {"VID1": "VID1"})
    shown = ShownTable("T", table.arms, ["VID1"], evidence)
    text = ScoreSections(scores=["model", "called"]).contents(shown)["table_last.md"].decode()
    assert "Boxes hit by the model, share, model of the last round" in text and "| FedAvg | 0.333 |" in text


@pytest.fixture
def made_step():
    """A stand-in for a finished job: its seed and its machine."""
    job = SimpleNamespace(study=SimpleNamespace(seed=0))
    return SimpleNamespace(job=job, machines=lambda: [SimpleNamespace(threads=1)])


def test_the_experiment_is_a_chain_whose_jobs_share_everything():
    table, data = table_of("fedst_tips"), data_of("lap_tips")
    table.check_data(data)
    assert data.shown_sites(table.test) == {name: name for name in data.operations}
    assert isinstance(table.layout, ScoreSections)
    for arm in table.arms:
        *jobs, tips = arm.stages
        assert type(tips).__name__ == "TipHits" and tips.covered == 0.25
        for stage in jobs:
            job = stage.job_of(place_of(arm.name, data, table.test))
            assert not job.keeps_private and files(job) and "evaluate" not in job.study.sites.values()


def test_frames_a_second_are_measured_and_kept(tmp_path, monkeypatch, made_step):
    seen = []

    class Counted(nn.Module):
        def forward(self, x):
            seen.append(tuple(x.shape))
            return x

    made = SimpleNamespace(fresh=Counted, size=(8, 10), frames=4)
    monkeypatch.setattr("research.runner.inference_speed.JobNetwork", lambda step: made)
    step = SpeedStep(made_step, tmp_path / "speed.json", 5)
    assert step.missing()
    step.make()
    assert not step.missing() and seen == [(1, 12, 8, 10)] * (WARM_UP + 5)
    scores = step.scores()
    assert float(scores["value"].iloc[0]) > 0 and scores["metric"].iloc[0] == "frames_per_second"
