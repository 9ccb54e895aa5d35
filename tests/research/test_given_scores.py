"""Scores as they are written, and of seeds that another machine ran."""

import pandas as pd
import pytest

from fedmed.errors import DataError
from research.runner.given_scores import given_scores
from research.runner.score_table import COLUMNS, joined, score_frame, write_scores

ARMS = ("left out", "agreement")


def frame(seeds, arms=ARMS, value=0.5):
    row = {"site": "ct_east", "list": "test", "model": "last", "unit": "c1", "metric": "dice", "value": value}
    return pd.DataFrame([{"arm": arm, "seed": seed, **row} for seed in seeds for arm in arms], columns=COLUMNS)


def test_scores_read_back_as_they_were(tmp_path):
    one = score_frame([{"unit": "case_01", "value": 0.1 + 0.2}], arm="supervised only", seed=0, site="image_1")
    two = score_frame([{"unit": "NA", "value": 1e-17}], arm='lr 5e-6, "x"', seed=1, site="b", draw="0", fraction=0.1)
    frame = joined([each.assign(list="test", model="last", metric="dice") for each in (one, two)])
    write_scores(tmp_path / "new" / "scores.csv", frame)
    text = {name: str for name in frame.columns if name not in ("seed", "value")}
    read = pd.read_csv(tmp_path / "new" / "scores.csv", dtype=text, keep_default_na=False, float_precision="round_trip")
    assert list(read.columns) == list(frame.columns) and list(read.columns)[-2:] == ["draw", "fraction"]
    assert read.astype(object).to_dict("records") == frame.astype(object).to_dict("records")
    assert (read["unit"][1], read["draw"][0], read["value"][1]) == ("NA", "", 1e-17)


def test_seeds_of_several_files_are_one_table_with_the_numbers_as_they_were(tmp_path):
    write_scores(tmp_path / "a.csv", frame([16, 17], value=1 / 3))
    write_scores(tmp_path / "b.csv", frame([18], (*ARMS, "agreement: north", "silent")))
    given = given_scores([tmp_path / "a.csv", tmp_path / "b.csv"], ARMS)
    assert given.seeds == (16, 17, 18)
    shown = given.of(["agreement"])
    kept = sorted(zip(shown["arm"], shown["seed"], strict=True))
    assert kept == [("agreement", 16), ("agreement", 17), ("agreement", 18), ("agreement: north", 18)]
    assert set(shown["value"][shown["seed"] < 18]) == {1 / 3}
    none = given_scores([], ARMS)
    assert none.seeds == () and none.of(ARMS).empty


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([frame([16], ["left out"])], "seed 16 has no scores of 'agreement'"),
        ([frame([16]), frame([16, 17])], "seed 16 is in .*0.csv too"),
        ([frame([16]).drop(columns="unit")], "no column 'unit'"),
        ([frame([])], "it has no rows"),
        ([frame([16]).assign(value="high")], "could not convert"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path, files, words):
    paths = [tmp_path / f"{number}.csv" for number in range(len(files))]
    for path, one in zip(paths, files, strict=True):
        one.to_csv(path, index=False)
    with pytest.raises(DataError, match=words) as error:
        given_scores(paths, ARMS)
    assert str(error.value).startswith(str(paths[-1]))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="none.csv: is no table of scores"):
        given_scores([tmp_path / "none.csv"], ARMS)
