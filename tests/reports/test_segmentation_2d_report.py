"""Charts of masks of several classes."""

import pandas as pd
import pytest

from fedmed.reports.run import read_run
from fedmed.reports.segmentation_2d_report import ISLANDS, Segmentation2DReport, class_tables
from tests.reports.records import change, change_test

SCORES = ("dice", "iou", "hd95", "assd")
CLASSES = [{"name": name, "colour": colour} for name, colour in (("shaft", "#ff0000"), ("wrist", "#00ff00"))]


@pytest.fixture
def run(fake_run):
    """A run in which no mask of a site shows one of the classes."""
    folder = fake_run(sites={"one": "supervised", "other": "supervised"}, rounds=2, refuse=())
    change_test(folder, "one", **{f"{score}_{label}": 0.5 for score in SCORES for label in ("shaft", "wrist")})
    change_test(folder, "other", **{f"{score}_shaft": 0.75 for score in SCORES})
    change(folder, "run", classes=CLASSES)
    return read_run(folder)


def test_a_class_that_a_site_lacks_is_a_dash_and_does_not_count_in_the_mean(run):
    figure = class_tables(run)
    assert [len(axes.texts) for axes in figure.axes] == [6] * 4
    for axes, wanted in zip(figure.axes, [["0.50", "0.50", "0.75", "–", "0.62", "0.50"]] * 2, strict=False):
        assert [text.get_text() for text in axes.texts] == wanted
    assert [text.get_text() for text in figure.axes[2].texts] == ["0.5", "0.5", "0.8", "–", "0.6", "0.5"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["shaft", "wrist"]


def test_distant_islands_are_counted_and_their_videos_named(run):
    cases = {"case": ["a", "b", "c", "d", "e"], "dice": [0.9] * 5, "n_frames": [10] * 5}
    one, other = run.sites
    one.cases = pd.DataFrame(cases | {"islands": [0, 2, 9, 1, 1], "island_frames": [0, 1, 3, 1, 1]})
    other.cases = pd.DataFrame(cases | {"islands": [0] * 5, "island_frames": [0] * 5})
    (said,) = Segmentation2DReport().findings(run)
    assert said == f"{ISLANDS}: one 13, in 6 of 50 frames: c (9), b (2), d (1) and 1 other video."
    one.cases = one.cases.drop(columns=["islands"])  # of a run before they were counted
    assert Segmentation2DReport().findings(run) == []
