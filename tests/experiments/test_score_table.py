import pytest

from fedmed.errors import DataError
from fedmed.experiments.score_table import joined, read_scores, score_frame, write_scores

HEAD = "arm,seed,site,list,model,unit,metric,value\n"
ROW = "a,0,s,test,last,c,dice,0.5\n"


def test_scores_read_back_as_they_were(tmp_path):
    one = score_frame([{"unit": "case_01", "value": 0.1 + 0.2}], arm="supervised only", seed=0, site="image_1")
    two = score_frame([{"unit": "NA", "value": 1e-17}], arm='lr 5e-6, "x"', seed=1, site="b", draw="0", fraction=0.1)
    frame = joined([each.assign(list="test", model="last", metric="dice") for each in (one, two)])
    write_scores(tmp_path / "new" / "scores.csv", frame)
    read = read_scores(tmp_path / "new" / "scores.csv")
    assert list(read.columns) == list(frame.columns) and list(read.columns)[-2:] == ["draw", "fraction"]
    assert read.astype(object).to_dict("records") == frame.astype(object).to_dict("records")
    assert (read["unit"][1], read["draw"][0], read["value"][1]) == ("NA", "", 1e-17)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arm,seed\n", "no column 'site'"),
        (HEAD + ROW.replace(",0,", ",zero,"), "line 2: seed 'zero' is not a number"),
        (HEAD + ROW.replace(",0,", ",0.5,"), "line 2: seed '0.5' is not a number"),
        (HEAD + ROW + ROW.replace("c,dice,0.5", "d,dice,nan"), "line 3: value 'nan' is not a number"),
        (HEAD + ROW.replace("0.5", "inf"), "line 2: value 'inf' is not a number"),
        (HEAD + ROW.replace("0.5", ""), "line 2: value '' is not a number"),
        (HEAD + ROW + ROW.replace("0.5", "0.6"), "line 3: the same row is there twice"),
        ("", "cannot be read"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "scores.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_scores(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="run the experiment"):
        read_scores(tmp_path / "scores.csv")
