"""Phases of frames in batches of any size: scores of each video, counts, and the files that stay at the site."""

import numpy as np
import pytest

from fedmed.errors import DataError, FedMedError
from fedmed.training.label_counts import Confusion
from fedmed.training.video_recorder import PhaseRecorder, PhaseScore

from .conftest import run_frames, table

PHASES = ["preparation", "clipping", "cleaning"]
NAMES = ["a", "b", "c"]


def videos(lengths=(7, 4, 9), seed=0):
    """(truth (T,), logits (T, 3)) of each; the last phase is in the last video alone."""
    rng = np.random.default_rng(seed)
    truth = [np.sort(rng.integers(0, 3 if length == 9 else 2, length)) for length in lengths]
    return [(true, rng.normal(0, 1, (len(true), 3)) + 1.5 * np.eye(3)[true]) for true in truth]


def run(made, attach, size=5):
    return run_frames(made, attach, size, seconds=0.5)


def recorded(folder, made, size=5):
    recorder = PhaseRecorder(folder, NAMES[: len(made)], PHASES)
    run(made, recorder.attach, size)
    return recorder.finish()


@pytest.mark.parametrize("size", [1, 5, 50])
def test_scores_are_those_of_each_video_first(tmp_path, size):
    made = videos()
    result = recorded(tmp_path, made, size)
    each = [Confusion.of(truth, logits.argmax(1), 3) for truth, logits in made]
    for score in ("f1", "accuracy", "precision", "recall"):
        values = [one.scores()[score] for one in each]
        assert result[f"{score}_mean"] == pytest.approx(np.mean(values))
        if score in ("f1", "accuracy"):
            assert result[f"{score}_std"] == pytest.approx(np.std(values, ddof=1))
    total = each[0] + each[1] + each[2]
    assert total.numbers(PHASES).items() <= result.items()
    assert result["pooled_f1"] == pytest.approx(total.scores()["f1"]) and result["pooled_f1"] != result["f1_mean"]
    assert (result["n_cases"], result["n_frames"]) == (3, 20)
    assert all(isinstance(value, int | float) for value in result.values())


def test_the_metric_of_a_validation_is_the_recorders(tmp_path):
    made = videos()
    result = recorded(tmp_path, made)
    for name in ("f1", "accuracy"):
        metric = PhaseScore(name)
        engine = run(made, lambda engine, metric=metric: metric.attach(engine, "val_x"))
        assert engine.state.metrics["val_x"] == result[f"{name}_mean"]
    with pytest.raises(FedMedError, match="name is 'auroc'; use one of f1"):
        PhaseScore("auroc")


def test_files_stay_and_hold_every_frame(tmp_path):
    made = videos()
    recorded(tmp_path, made)
    rows, lines = table(tmp_path / "cases.csv"), table(tmp_path / "frames/003_c.csv")
    assert [(row["case"], row["n_frames"]) for row in rows] == [("a", "7"), ("b", "4"), ("c", "9")]
    truth, logits = made[2]
    assert [float(line["second"]) for line in lines] == [t / 2 for t in range(9)]
    assert [PHASES.index(line["true_phase"]) for line in lines] == truth.tolist()
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.allclose([[float(line[f"p_{name}"]) for name in PHASES] for line in lines], expected, atol=1e-6)
    best = np.load(tmp_path / "best.npz")
    assert float(best["f1"]) == pytest.approx(max(float(row["f1"]) for row in rows), abs=1e-6)
    truth, logits = made[NAMES.index(str(best["case"]))]
    assert np.array_equal(best["truth"], truth) and np.array_equal(best["called"], logits.argmax(1))


def test_every_video_is_kept_for_a_comparison_in_the_order_of_the_list(tmp_path):
    made, recorder = videos(), PhaseRecorder(tmp_path, NAMES, PHASES)
    run(made, recorder.attach)
    recorder.finish()
    recorder.write_every_case()
    assert sorted(path.name for path in (tmp_path / "every_case").iterdir()) == ["1.npz", "2.npz", "3.npz"]
    for number, (name, (truth, logits)) in enumerate(zip(NAMES, made, strict=True), start=1):
        kept = np.load(tmp_path / f"every_case/{number}.npz")
        assert str(kept["case"]) == name and kept["classes"].tolist() == PHASES
        assert np.array_equal(kept["truth"], truth) and np.array_equal(kept["called"], logits.argmax(1))


def test_what_cannot_be_scored_is_one_clear_error(tmp_path):
    made = videos()
    with pytest.raises(DataError, match="3 outputs a frame, 2 classes"):
        run(made, PhaseRecorder(tmp_path, NAMES, PHASES[:2]).attach)
    with pytest.raises(FedMedError, match="whole numbers"):
        run([(truth.astype(float), logits) for truth, logits in made], PhaseRecorder(tmp_path, NAMES, PHASES).attach)
    made[0][0][0] = 3
    with pytest.raises(FedMedError, match="a class is not one of 0 … 2"):
        run(made, PhaseRecorder(tmp_path, NAMES, PHASES).attach)
    made[1][1][2, 0] = np.inf
    with pytest.raises(DataError, match="infinite for 1 of 4 frames of video number 1"):
        run([videos()[0], made[1]], PhaseRecorder(tmp_path, NAMES, PHASES).attach)
