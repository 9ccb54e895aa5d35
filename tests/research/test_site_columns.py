"""A table with a column a site: scores of single cases, and those that need all images of a list, such as AUROC."""

import numpy as np
import pytest

from fedmed.errors import DataError
from research.runner.score_kinds import AurocOfClasses, UnitMean
from research.runner.score_table import MEAN_UNIT, joined, score_frame
from research.runner.site_columns import SiteColumns
from research.runner.table_claim import Evidence
from research.runner.table_layout import ShownArm, ShownTable

SITES = ["metro", "rural"]
LABELS = ["ill", "ill", "well", "well"]


def table(frame, kind):
    evidence = Evidence(frame, {"score": kind}, {site: site for site in SITES})
    arms = [ShownArm("pooled")]
    return SiteColumns().contents(ShownTable("T", arms, SITES, evidence))


def probabilities(site, seed, ill):
    """Of four images, as a finished job's scores have them: a row an image and class, and one of the validation."""
    common = {"arm": "pooled", "seed": seed, "site": site, "model": "last"}
    images = [f"{site} {number}" for number in range(4)]
    rows = {"p_ill": ill, "p_well": 1 - np.array(ill)}
    tested = [
        score_frame({"unit": images, "label": LABELS, "value": list(values)}, list="test", metric=metric, **common)
        for metric, values in rows.items()
    ]
    return [*tested, score_frame({"value": [0.5]}, list="valid", metric="auroc", unit=MEAN_UNIT, **common)]


def test_a_score_of_all_images_is_that_of_each_sites_test_list():
    ranked, mixed, reversed_ = [0.9, 0.8, 0.2, 0.1], [0.9, 0.3, 0.4, 0.1], [0.1, 0.2, 0.8, 0.9]
    frames = [
        *probabilities("metro", 0, ranked),
        *probabilities("metro", 1, mixed),  # three of four pairs are in order
        *probabilities("rural", 0, reversed_),
        *probabilities("rural", 1, ranked),
    ]
    contents = table(joined(frames), AurocOfClasses(label="AUROC", unit="image"))
    assert set(contents) == {"table_last.md", "table_last.csv", "figure_last.png"}
    lines = contents["table_last.csv"].decode().splitlines()
    assert lines[0] == "group,arm,site,list,n_seeds,n_cases,score_mean,score_std"
    rows = [line.split(",") for line in lines[1:]]
    assert [row[1:6] for row in rows] == [["pooled", site, "test", "2", "4"] for site in SITES]
    assert [float(row[6]) for row in rows] == [0.875, 0.5]
    assert "metro test (4 images)" in contents["table_last.md"].decode()


def test_a_score_of_cases_is_their_mean_also_on_validation_lists():
    common = {"arm": "pooled", "seed": 0, "site": "metro", "metric": "dice", "model": "selected"}
    tested = score_frame({"unit": ["a", "b"], "value": [0.5, 0.75]}, list="test", **common)
    frame = joined([tested, score_frame({"value": [0.25]}, list="valid", unit=MEAN_UNIT, **common)])
    rows = table(frame, UnitMean(label="Dice", metric="dice"))["table.csv"].decode().splitlines()
    assert [row.split(",")[3] for row in rows[1:]] == ["valid", "test"]
    assert [float(row.split(",")[6]) for row in rows[1:]] == [0.25, 0.625]


def test_images_without_classes_have_no_auroc():
    frame = joined(probabilities("metro", 0, [0.5] * 4)).assign(label="")
    with pytest.raises(DataError, match="labels"):
        table(frame, AurocOfClasses(label="AUROC"))
