import csv
import io

import pytest

from fedmed.errors import JobError
from fedmed.experiments.info import ArmInfo, TableInfo
from fedmed.experiments.tables import seeds_phrase, table_csv, table_markdown, table_rows

ARMS = [ArmInfo("L1", "loss"), ArmInfo("one site"), ArmInfo("w = 0.1", "weight"), ArmInfo("CE|Dice", "loss")]
SITES = ["site_1", "site_2"]


@pytest.fixture
def scores(runs):
    found = runs("one site", [[0.5, 0.7], [0.7, 0.9]]) + runs("one site", [[0.61], [0.63]], list="valid")
    found += runs("L1", [[0.6, 0.6], [0.6, 0.6]]) + runs("CE|Dice", [[0.7, 0.7], [0.6999, 0.7]])
    found += runs("one site", [[0.2]] * 2, site="site_2") + runs("CE|Dice", [[0.3]] * 2, site="site_2")
    return found + runs("one site", [[0.1, 0.1]], model="selected") + runs("one site", [[0.9]], site="elsewhere")


def test_markdown(scores):
    info = TableInfo("t", "A title", ARMS, SITES)
    text = table_markdown(info, table_rows(info, scores, "last"), "last")
    assert text == (
        "# A title\n\n"
        "Dice, model of the last round; mean ± standard deviation over 2 seeds.\n\n"
        "| arm | site_1 valid | site_1 test (2 cases) | site_2 test (1 case) |\n"
        "|---|--:|--:|--:|\n"
        "| one site | 0.620 ± 0.014 | **0.700** ± 0.141 | 0.200 ± 0.000 |\n"
        "| *loss* |  |  |  |\n"
        "| L1 | – | 0.600 ± 0.000 | – |\n"
        "| CE\\|Dice | – | **0.700** ± 0.000 | **0.300** ± 0.000 |\n"  # reads the same as the best
    )


def test_one_seed_has_no_deviation_and_one_arm_is_not_the_best(scores):
    info = TableInfo("t", "A title", ARMS, SITES)
    rows = table_rows(info, scores, "selected")
    assert [(row.n_seeds, row.dice_std) for row in rows] == [(1, None)]
    assert "| one site | 0.100 |" in table_markdown(info, rows, "selected")
    assert "one seed." in table_markdown(info, rows, "selected")


def test_csv(scores):
    rows = list(csv.DictReader(io.StringIO(table_csv(table_rows(TableInfo("t", "", ARMS, SITES), scores, "last")))))
    assert [(row["arm"], row["site"], row["list"]) for row in rows][:3] == [
        ("one site", "site_1", "valid"),
        ("one site", "site_1", "test"),
        ("one site", "site_2", "test"),
    ]
    assert float(rows[1]["dice_mean"]) == pytest.approx(0.7)
    assert float(rows[1]["dice_std"]) == pytest.approx(0.02**0.5)
    assert (rows[1]["n_seeds"], rows[1]["n_cases"], rows[1]["group"], rows[3]["group"]) == ("2", "2", "", "loss")


def test_seeds_phrase():
    assert seeds_phrase([5, 5]) == "mean ± standard deviation over 5 seeds"
    assert seeds_phrase([1, 5, 3]) == "mean ± standard deviation over 1 to 5 seeds"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arms": [ArmInfo("a"), ArmInfo("a")]}, "arm 'a' is there twice"),
        ({"sites": ["s", "s"]}, "site 's' is there twice"),
        ({"baseline": "b"}, "baseline 'b' is none of its arms"),
        ({"x_label": "rate"}, "no arm has an x"),
        ({"x_label": "rate", "arms": [ArmInfo("a", x=1), ArmInfo("b", x=1.0)]}, "the same x"),
        ({"x_label": "rate", "x_log": True, "arms": [ArmInfo("a", x=0)]}, "x = 0 has no place"),
    ],
)
def test_bad_descriptions(settings, message):
    with pytest.raises(JobError, match=f"experiment 't': .*{message}"):
        TableInfo(**{"name": "t", "title": "", "arms": [ArmInfo("a")], "sites": ["s"], **settings})
