"""Scores of videos from frames in batches of any size, and the files that stay at the site."""

import numpy as np
import pytest
from ignite.engine import Engine

from fedmed.errors import DataError, FedMedError
from fedmed.training.label_counts import LabelCounts
from fedmed.training.video_recorder import PresenceRecorder, VideoF1

from .conftest import run_frames, table

TOOLS = ["grasper", "clipper", "bag"]
NAMES = ["a", "b", "c"]


def videos(lengths=(7, 4, 9), seed=0):
    """(truth (T, 3), logits (T, 3)) of each; the third tool is in the last video alone."""
    rng = np.random.default_rng(seed)
    made = []
    for place, length in enumerate(lengths):
        truth = rng.random((length, 3)) < [0.6, 0.4, 0.5 if place == 2 else 0]
        made.append((truth, (rng.normal(0, 1, (length, 3)) + 2 * truth - 1 - 3 * (np.arange(3) == 2) * (place < 2))))
    return made


def run(made, attach, size=5):
    return run_frames([(truth.astype(np.float32), logits) for truth, logits in made], attach, size)


def recorded(folder, made, size=5):
    recorder = PresenceRecorder(folder, NAMES[: len(made)], TOOLS)
    run(made, recorder.attach, size)
    return recorder


@pytest.mark.parametrize("size", [1, 5, 50])
def test_numbers_of_all_videos_follow_from_frames_whatever_the_batches(tmp_path, size):
    made = videos()
    result = recorded(tmp_path, made, size).finish()
    counts = [LabelCounts.of(truth, logits >= 0) for truth, logits in made]
    f1 = [np.nanmean(one.f1("skip")) for one in counts]
    total = counts[0] + counts[1] + counts[2]
    assert result["f1_mean"] == pytest.approx(np.mean(f1)) and result["f1_std"] == pytest.approx(np.std(f1, ddof=1))
    assert result["pooled_f1_zero"] == pytest.approx(total.f1().mean())
    assert result["pooled_f1_skip"] == pytest.approx(np.nanmean(total.f1("skip")))
    assert total.numbers(TOOLS).items() <= result.items()
    assert (result["n_cases"], result["n_frames"]) == (3, 20) and 0 < result["ap_mean"] <= 1
    assert result["ap_bag"] > 0, "of the one video that shows it"
    assert all(isinstance(value, int | float) for value in result.values())


def test_the_metric_of_a_validation_is_the_recorders(tmp_path):
    made, metric = videos(), VideoF1()
    for _ in range(2):  # a second run forgets the first
        engine = run(made, lambda engine: metric.attach(engine, "val_f1"))
    assert engine.state.metrics["val_f1"] == recorded(tmp_path, made).finish()["f1_mean"]


def test_files_stay_and_hold_every_frame(tmp_path):
    made = videos()
    recorded(tmp_path, made).finish()
    rows, lines = table(tmp_path / "cases.csv"), table(tmp_path / "frames/003_c.csv")
    assert [(row["case"], row["n_frames"]) for row in rows] == [("a", "7"), ("b", "4"), ("c", "9")]
    assert sorted(path.name for path in (tmp_path / "frames").iterdir()) == ["001_a.csv", "002_b.csv", "003_c.csv"]
    truth, logits = made[2]
    for t, line in enumerate(lines):
        assert float(line["second"]) == t
        assert [int(line[f"true_{name}"]) for name in TOOLS] == truth[t].tolist()
        assert [float(line[f"p_{name}"]) for name in TOOLS] == pytest.approx(1 / (1 + np.exp(-logits[t])), abs=1e-6)
    best = np.load(tmp_path / "best.npz")
    assert float(best["f1"]) == pytest.approx(max(float(row["f1"]) for row in rows), abs=1e-6)
    place = NAMES.index(str(best["case"]))
    assert np.array_equal(best["truth"], made[place][0]) and best["classes"].tolist() == TOOLS


def test_nothing_seen_and_nothing_called_is_right(tmp_path):
    made = [(np.zeros((4, 3), bool), np.full((4, 3), -3.0))]
    result = recorded(tmp_path, made).finish()
    assert result["f1_mean"] == 1 and result["pooled_f1_zero"] == 0
    assert "pooled_f1_skip" not in result and "ap_mean" not in result and "f1_std" not in result


def test_what_cannot_be_scored_is_one_clear_error(tmp_path):
    made = videos()
    with pytest.raises(DataError, match="evaluation saw 2 of 3 cases"):
        recorder = PresenceRecorder(tmp_path, NAMES, TOOLS)
        run(made[:2], recorder.attach)
        recorder.finish()
    with pytest.raises(DataError, match="more videos than names"):
        run(made, PresenceRecorder(tmp_path, NAMES[:2], TOOLS).attach)
    with pytest.raises(DataError, match="3 labels a frame, 2 classes"):
        run(made, PresenceRecorder(tmp_path, NAMES, TOOLS[:2]).attach)
    made[1][1][2, 0] = np.nan
    with pytest.raises(DataError, match="infinite for 1 of 4 frames of video number 1"):
        run(made, PresenceRecorder(tmp_path, NAMES, TOOLS).attach)


def test_cases_taken_apart_are_refused(tmp_path):
    engine = Engine(lambda _, batch: [{"pred": 0}])
    PresenceRecorder(tmp_path, NAMES, TOOLS).attach(engine)
    with pytest.raises(FedMedError, match="decollate=False"):
        engine.run([{}])
