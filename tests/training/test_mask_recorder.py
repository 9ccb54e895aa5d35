"""Masks of several classes: each class of a frame, each frame, each video, all videos."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedmed.errors import DataError, FedMedError
from fedmed.training.mask_recorder import MaskDice, MaskRecorder, class_scores, frame_scores

from .conftest import run_frames, table

CLASSES, NAMES, SCORES = ["shaft", "wrist"], ["a", "b"], ("dice", "iou", "hd95", "assd")


def test_scores_worked_out_by_hand():
    """Truth rows 2-5, called rows 2-8 of a 12 x 12 frame, columns 2-5 both."""
    truth, called = np.zeros((2, 12, 12), np.uint8)
    truth[2:6, 2:6], called[2:9, 2:6] = 1, 1
    result = class_scores(truth, called, 2)
    assert result[0].tolist() == pytest.approx([0.7272727, 0.5714286, 3.0, 0.6666667], abs=1e-6)
    assert np.isnan(result[1]).all(), "a class in neither"
    truth[10, 10] = 2
    missed = class_scores(truth, called, 2)
    assert missed[1].tolist() == pytest.approx([0, 0, math.hypot(12, 12), math.hypot(12, 12)])
    mean = frame_scores(missed[None])[0]
    assert mean.tolist() == pytest.approx(((missed[0] + missed[1]) / 2).tolist())
    without = class_scores(truth, called, 2, distances=False)
    assert np.array_equal(without[:, :2], missed[:, :2]) and np.isnan(without[:, 2:]).all()


def test_nothing_there_and_nothing_called_is_right():
    empty = np.zeros((4, 4), np.uint8)
    mean = frame_scores(class_scores(empty, empty, 2)[None])[0]
    assert mean[:2].tolist() == [1, 1] and np.isnan(mean[2:]).all()


def videos(lengths=(3, 2), seed=0):
    """(truth (T, H, W), called (T, H, W)) of each; blobs of two classes, some of them missed."""
    rng = np.random.default_rng(seed)
    made = []
    for length in lengths:
        truth = np.zeros((length, 16, 20), np.uint8)
        for frame in truth:
            row, column = rng.integers(1, 8, 2)
            frame[row : row + 6, column : column + 8] = 1
            frame[row + 3 : row + 6, column : column + 3] = 2
        called = np.roll(truth, 1, axis=2)
        called[0][called[0] == 2] = 0
        made.append((truth, called))
    return made


def run(made, attach, size=2, channel=False):
    def with_images(engine):
        frames = range(sum(len(truth) for truth, _ in made))
        images = [{"image": torch.full((2, 3, 16, 20), 10 * place, dtype=torch.uint8)} for place in frames]
        engine.data_loader = SimpleNamespace(dataset=images)
        attach(engine)

    wholes = [(truth[:, None] if channel else truth, np.moveaxis(np.eye(3)[called], -1, 1)) for truth, called in made]
    return run_frames([(truth.astype(np.int64), 9 * p) for truth, p in wholes], with_images, size, seconds=3.0)


def recorded(folder, made, **options):
    recorder = MaskRecorder(folder, NAMES, CLASSES, **options)
    run(made, recorder.attach)
    return recorder.finish()


@pytest.mark.parametrize(("size", "channel"), [(1, True), (2, False), (9, False)])
def test_means_are_of_classes_then_frames_then_videos(tmp_path, size, channel):
    made = videos()
    recorder = MaskRecorder(tmp_path, NAMES, CLASSES)
    run(made, recorder.attach, size, channel)
    result = recorder.finish()
    each = [np.stack([class_scores(t, c, 2) for t, c in zip(*video, strict=True)]) for video in made]
    of_videos = [frame_scores(one).mean(0) for one in each]
    for place, score in enumerate(SCORES):
        assert result[f"{score}_mean"] == pytest.approx(np.mean([one[place] for one in of_videos]))
        for label, name in enumerate(CLASSES):
            assert result[f"{score}_{name}"] == pytest.approx(np.mean([one[:, label, place].mean() for one in each]))
    assert (
        result["dice_std"] == pytest.approx(np.std([one[0] for one in of_videos], ddof=1)) and "hd95_std" not in result
    )
    assert (result["n_cases"], result["n_frames"]) == (2, 5)
    metric = MaskDice()
    engine = run(made, lambda engine: metric.attach(engine, "val_dice"), size)
    assert engine.state.metrics["val_dice"] == pytest.approx(result["dice_mean"])


def test_files_hold_every_frame_and_pictures_of_three(tmp_path):
    made = videos()
    recorded(tmp_path, made)
    lines = table(tmp_path / "frames/001_a.csv")
    assert [float(line["second"]) for line in lines] == [0, 3, 6]
    expected = class_scores(made[0][0][0], made[0][1][0], 2)
    assert float(lines[0]["dice_wrist"]) == 0 and float(lines[0]["hd95_wrist"]) == pytest.approx(math.hypot(16, 20))
    assert float(lines[0]["iou"]) == pytest.approx(expected[:, 1].mean(), abs=1e-6)
    worst = np.load(tmp_path / "worst.npz")
    places = {f"{name}, {3.0 * t:.1f} s": (v, t) for v, name in enumerate(NAMES) for t in range(len(made[v][0]))}
    video, frame = places[str(worst["case"])]
    assert np.array_equal(worst["truth"], made[video][0][frame])
    assert np.array_equal(worst["prediction"], made[video][1][frame])
    assert worst["image"].shape == (16, 20, 3) and (worst["image"] == 10 * (3 * video + frame)).all()
    dices = [float(line["dice"]) for name in ("001_a", "002_b") for line in table(tmp_path / f"frames/{name}.csv")]
    assert float(worst["dice"]) == pytest.approx(min(dices), abs=1e-6)


def test_masks_of_every_video_are_kept_for_a_comparison(tmp_path):
    made, recorder = videos(), MaskRecorder(tmp_path, NAMES, CLASSES)
    run(made, recorder.attach)
    recorder.finish()
    assert not (tmp_path / "every_case").exists()
    recorder.write_every_case()
    kept = [np.load(tmp_path / f"every_case/{number}.npz") for number in (1, 2)]
    assert [one["frames"].tolist() for one in kept] == [["a, 0.0 s", "a, 3.0 s", "a, 6.0 s"], ["b, 0.0 s", "b, 3.0 s"]]
    assert [int(one["first"]) for one in kept] == [0, 3] and kept[0]["classes"].tolist() == CLASSES
    for name, one, pair in zip(("001_a", "002_b"), kept, made, strict=True):
        written = [float(line["dice"]) for line in table(tmp_path / f"frames/{name}.csv")]
        assert one["dice"].tolist() == pytest.approx(written, abs=1e-6)
        for n, (true, called) in enumerate(zip(*pair, strict=True)):
            assert np.array_equal(one[f"masks_{n}"], [called, true])


def test_a_class_that_no_video_shows_has_no_number(tmp_path):
    made = [(np.minimum(truth, 1), np.minimum(called, 1)) for truth, called in videos()]
    result = recorded(tmp_path, made)
    assert not [key for key in result if key.endswith("_wrist")] and all(map(math.isfinite, result.values()))
    for score in SCORES:
        assert result[f"{score}_mean"] == pytest.approx(result[f"{score}_shaft"])
    lines = table(tmp_path / "frames/001_a.csv")
    assert [line["dice_wrist"] for line in lines] == [""] * 3, "nothing is written for it"


def test_what_cannot_be_scored_is_one_clear_error(tmp_path):
    made = videos()
    with pytest.raises(DataError, match="3 outputs a pixel, 3 classes"):
        run(made, MaskRecorder(tmp_path, NAMES, [*CLASSES, "jaw"]).attach)
    made[0][0][0, 0, 0] = 3
    with pytest.raises(FedMedError, match="a mask has the value 3, and the network 3 outputs"):
        run(made, MaskRecorder(tmp_path, NAMES, CLASSES).attach)
    with pytest.raises(FedMedError, match=r"use \(B, C, H, W\) and whole numbers"):
        run([(truth[:, :8], called) for truth, called in videos()], MaskRecorder(tmp_path, NAMES, CLASSES).attach)


def test_all_parts_are_scored_as_one_foreground(tmp_path):
    """Called and true are 1 where any class is; a part taken for another is right, and no class has a number."""
    made = videos()
    result = recorded(tmp_path, made, whole=True)
    frames = [
        [class_scores(np.minimum(t, 1), np.minimum(c, 1), 1)[0] for t, c in zip(*one, strict=True)] for one in made
    ]
    for place, score in enumerate(SCORES):
        assert result[f"{score}_mean"] == pytest.approx(
            np.mean([np.mean([f[place] for f in local]) for local in frames])
        )
    assert set(result) == {*(f"{score}_mean" for score in SCORES), "dice_std", "iou_std", "n_frames", "n_cases"}
    assert np.load(tmp_path / "best.npz")["classes"].tolist() == ["foreground"]
    swapped = [(truth, np.where(called > 0, 3 - called, 0).astype(np.uint8)) for truth, called in made]
    assert recorded(tmp_path / "swapped", swapped, whole=True) == result


def test_parts_far_from_all_that_is_true_are_counted(tmp_path):
    made = videos()
    reach = math.ceil(0.1 * math.hypot(16, 20))  # 3 pixels
    for truth, called in made:
        called[:] = truth
    truth, called = made[1][0][1], made[1][1][1]
    truth[:], called[:] = 0, 0
    truth[:4, :4] = called[:4, :4] = 1
    called[0, 4 + reach], called[10, 10], called[15, 19] = 2, 1, 2  # the first lies one pixel beyond the limit
    called[0, 4] = 1  # touches what is true
    recorded(tmp_path, made)
    assert [(line["islands"], line["island_frames"]) for line in table(tmp_path / "cases.csv")] == [
        ("0", "0"),
        ("3", "1"),
    ]
