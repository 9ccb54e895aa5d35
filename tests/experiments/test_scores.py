import pytest

from fedmed.errors import DataError
from fedmed.experiments.scores import Score, read_scores, write_scores

SCORES = [
    Score("supervised only", 0, "image_1", "test", "last", "case_01", 0.1 + 0.2),
    Score("lr 5e-6, two-sided", 1, "image_1", "valid", "selected", "mean", 1.0),
]
HEAD = "arm,seed,site,list,model,case,dice\n"


def test_scores_read_back_as_they_were(tmp_path):
    write_scores(tmp_path / "new" / "scores.csv", SCORES)
    assert read_scores(tmp_path / "new" / "scores.csv") == SCORES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arm,seed\n", "columns"),
        (HEAD + "a,zero,s,test,last,c,0.5\n", "line 2 is no score"),
        (HEAD + "a,0,s,test,last,c\n", "line 2 is no score"),
        (HEAD + "a,0,s,testing,last,c,0.5\n", "list 'testing'"),
        (HEAD + "a,0,s,test,best,c,0.5\n", "model 'best'"),
        (HEAD + "a,0,s,test,last,c,nan\n", "Dice of nan"),
        (HEAD + "a,0,s,test,last,c,0.5\na,0,s,test,last,c,0.6\n", "line 3: .*twice"),
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
