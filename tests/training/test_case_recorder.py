import statistics

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.engines import SupervisedEvaluator

from fedmed.errors import DataError, FedMedError
from fedmed.training.case_recorder import CaseRecorder, best_slice

from .conftest import table

SHAPE = (6, 5, 4)


def volume(*boxes):
    mask = torch.zeros(SHAPE)
    for box in boxes:
        mask[box] = 1
    return mask


A = (slice(1, 4), slice(1, 4), slice(2, 3))  # 9 voxels in slice 2
B = (slice(1, 4), slice(1, 2), slice(2, 3))  # 3 of them
MASKS = [(A, A), (A, B), (A, ())]  # (truth, prediction): Dice 1, 0.5, 0


def cases(pairs=MASKS, two_channels=False):
    """One batch a case; the image's first channel is the prediction the network returns."""
    for truth, prediction in pairs:
        predicted = volume(*([prediction] if prediction else []))
        image = torch.stack([1 - predicted, predicted]) if two_channels else predicted[None]
        label = volume(*([truth] if truth else []))[None]
        yield {"image": image[None], "label": label[None]}


def run(folder, names, batches, spacing=None, window=None, **changes):
    evaluator = SupervisedEvaluator("cpu", list(batches), torch.nn.Identity(), **changes)
    recorder = CaseRecorder(folder, names, spacing, window)
    recorder.attach(evaluator)
    evaluator.run()
    return recorder


def rows(folder):
    return [(row["case"], float(row["dice"])) for row in table(folder / "cases.csv")]


@pytest.mark.parametrize("two_channels", [False, True])
def test_scores_files_and_aggregates(tmp_path, two_channels):
    names = ["first", "second", "third"]
    metrics = run(tmp_path / "evaluation", names, cases(two_channels=two_channels)).finish()
    dices = [1.0, 0.5, 0.0]
    assert metrics == {"dice_mean": 0.5, "dice_std": pytest.approx(statistics.stdev(dices)), "n_cases": 3,
                       "hd95_median": pytest.approx(2.0),
                       "volume_error": pytest.approx((0 + 6 + 9) / 3 / 1000)}  # fmt: skip
    assert rows(tmp_path / "evaluation") == list(zip(names, dices, strict=True))
    outcome = {path.name for path in (tmp_path / "evaluation").iterdir()}
    assert outcome == {"cases.csv", "best.npz", "median.npz", "worst.npz"}  # nothing temporary is left
    for kind, case, dice in zip(("best", "median", "worst"), names, dices, strict=True):
        with np.load(tmp_path / "evaluation" / f"{kind}.npz", allow_pickle=False) as picture:
            assert str(picture["case"]) == case
            assert float(picture["dice"]) == dice
            assert picture["truth"].dtype == picture["prediction"].dtype == np.uint8
            assert picture["truth"].shape == picture["image"].shape == (5, 6)  # rows are y, columns x
            assert picture["truth"].sum() == 9  # the slice with the lesion


def test_volumes_and_distant_islands_of_each_case_stay_in_the_table(tmp_path):
    far = (slice(5, 6), slice(0, 1), slice(0, 1))
    batches = list(cases([(A, A), (A, B)]))
    batches[1]["image"][0, 0][far] = 1
    recorder = run(tmp_path, ["a", "b"], batches, (10.0, 10.0, 10.0))
    sent = recorder.finish()
    assert not {"islands", "truth_ml"} & set(sent), "they never leave"
    assert sent["volume_error"] == 2.5
    columns = ("truth_ml", "prediction_ml", "islands", "islands_ml")
    outcome = [[float(row[name]) for name in columns] for row in table(tmp_path / "cases.csv")]
    assert outcome == [[9, 9, 0, 0], [9, 4, 1, 1]]


def test_a_picture_of_each_case_is_written_only_when_it_is_wanted(tmp_path):
    recorder = run(tmp_path, ["a", "b", "c"], cases())
    recorder.finish()
    assert not (tmp_path / "every_case").exists()
    recorder.write_every_case()
    pictures = {path.stem: np.load(path) for path in (tmp_path / "every_case").iterdir()}
    assert {name: str(one["case"]) for name, one in pictures.items()} == {"1": "a", "2": "b", "3": "c"}
    assert pictures["2"]["prediction"].sum() == 3


def test_slice_lies_as_radiologists_see_it(tmp_path):
    # One voxel at the patient's left (low x in RAS) and front (high y): top right in the picture.
    corner = (slice(0, 1), slice(4, 5), slice(1, 2))
    run(tmp_path, ["case"], cases([(corner, corner)])).finish()
    truth = np.load(tmp_path / "best.npz")["truth"]
    assert truth[0, -1] == 1 and truth.sum() == 1


def test_spacing_comes_from_the_image_or_the_argument(tmp_path):
    batch = next(cases([(A, A)]))
    output = {key: value[0] for key, value in batch.items()} | {"pred": batch["image"][0]}
    with_meta = output | {"image": MetaTensor(output["image"], affine=torch.diag(torch.tensor([0.7, 0.8, 5, 1.0])))}
    plain, given = CaseRecorder(tmp_path, ["a"]), CaseRecorder(tmp_path, ["a"], (0.5, 0.6, 2.0))
    assert plain._result("a", output).spacing == (1, 1)
    assert plain._result("a", with_meta).spacing == pytest.approx((0.8, 0.7))  # (row, column) = (y, x)
    assert given._result("a", output).spacing == (0.6, 0.5)


def test_one_case_has_no_spread_and_a_second_run_replaces_the_first(tmp_path):
    run(tmp_path, ["a"], cases([(A, A)])).finish()
    metrics = run(tmp_path, ["only"], cases([(A, B)])).finish()
    assert metrics == pytest.approx({"dice_mean": 0.5, "n_cases": 1, "hd95_median": 2.0, "volume_error": 0.006})
    assert all((tmp_path / f"{kind}.npz").is_file() for kind in ("best", "median", "worst"))
    assert rows(tmp_path) == [("only", 0.5)]


def test_cases_that_nobody_has_marked_are_drawn_and_not_scored(tmp_path):
    batches = [{"image": batch["image"]} for batch in cases([((), A), ((), ())])]
    run(tmp_path, ["a", "b"], batches, (2.0, 2.0, 5.0), (-1000, 0)).draw()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unscored_1.npz", "unscored_2.npz"]
    with np.load(tmp_path / "unscored_1.npz", allow_pickle=False) as picture:
        assert np.isnan(picture["dice"]) and np.isnan(picture["millilitres"][0]) and not picture["truth"].any()
        assert picture["millilitres"][1] == pytest.approx(9 * 20 / 1000) and picture["prediction"].sum() == 9
        assert picture["window"].tolist() == [-1000, 0]


def test_image_is_stored_in_its_range(tmp_path):
    batch = next(cases([(A, A)]))
    recorder = CaseRecorder(tmp_path, ["a"])
    output = {"image": batch["image"][0] * 3 - 1, "label": batch["label"][0], "pred": batch["image"][0]}
    recorder.results.append(recorder._result("a", output))
    recorder.finish()
    image = np.load(tmp_path / "best.npz")["image"]
    assert image.dtype == np.float32 and image.min() == 0 and image.max() == 1


def test_only_slices_stay_in_memory(tmp_path):
    recorder = run(tmp_path, ["a"], cases([(A, B)]))
    result = recorder.results[0]
    for array in (result.image, result.truth, result.prediction):
        assert array.shape == (5, 6)
        assert array.base is None or array.base.untyped_storage().nbytes() == array.nbytes


def test_best_slice():
    empty, one, two = volume().bool(), volume(B).bool(), volume((slice(0, 1), slice(0, 2), slice(3, 4))).bool()
    assert best_slice(one, two) == 2
    assert best_slice(empty, two) == 3
    assert best_slice(empty, empty) == 2


def test_errors(tmp_path):
    with pytest.raises(DataError, match="saw 0 of 0 cases.*testing"):
        CaseRecorder(tmp_path, []).finish()
    with pytest.raises(DataError, match="saw 1 of 2"):
        run(tmp_path, ["a", "b"], cases([(A, A)])).finish()
    with pytest.raises(DataError, match="more than the 1 cases"):
        run(tmp_path, ["a"], cases())
    with pytest.raises(FedMedError, match="decollate=True"):
        run(tmp_path, ["a"], cases([(A, A)]), decollate=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        run(tmp_path / "file", ["a"], cases([(A, A)])).finish()
