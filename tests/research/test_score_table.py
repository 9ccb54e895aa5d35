import pandas as pd

from research.runner.score_table import joined, score_frame, write_scores


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
