"""Charts of masks of several classes: over time, and by class."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedmed.errors import DataError
from fedmed.reports.run import read_run
from fedmed.reports.segmentation_2d_report import (
    ISLANDS,
    Segmentation2DReport,
    class_tables,
    dice_over_time,
    scored_videos,
)
from tests.reports.records import change, change_test

SCORES = ("dice", "iou", "hd95", "assd")
CLASSES = [{"name": name, "colour": colour} for name, colour in (("shaft", "#ff0000"), ("wrist", "#00ff00"))]


@pytest.fixture
def site(tmp_path):
    """Three videos, the second of which is best, each with three frames."""
    folder = tmp_path / "evaluation" / "frames"
    folder.mkdir(parents=True)
    for place, dice in enumerate((0.5, 0.9, 0.1)):
        lines = [
            "second,dice,dice_shaft,dice_jaw",
            f"0.000,{dice},{dice},",
            f"1.000,{dice},{dice},{dice}",
            f"2.500,{dice},,1",
        ]
        (folder / f"{place + 1:03d}_v{place}.csv").write_text("\n".join(lines) + "\n")
    cases = pd.DataFrame({"case": ["v0", "v1", "v2"], "dice": ["0.5", "0.9", "0.1"]})
    return SimpleNamespace(folder=tmp_path, cases=cases)


def test_the_best_the_median_and_the_worst_video_are_read(site):
    videos = scored_videos(site)
    assert [(video.kind, video.case) for video in videos] == [("best", "v1"), ("median", "v0"), ("worst", "v2")]
    assert videos[0].times.tolist() == [0, 1, 2.5] and videos[0].dice.tolist() == [0.9] * 3
    assert np.array_equal(videos[0].of_classes["jaw"], [np.nan, 0.9, 1.0], equal_nan=True)
    one = SimpleNamespace(folder=site.folder, cases=site.cases[:1])
    assert [video.kind for video in scored_videos(one)] == ["best, median and worst"]


def test_a_panel_a_video_and_a_line_a_class(site):
    figure = dice_over_time(scored_videos(site), "inst_a")
    assert len(figure.axes) == 3
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(lines) == ["shaft", "jaw", "mean of a frame"] and lines["jaw"].get_color() != lines["shaft"].get_color()
    assert figure.axes[0].get_xlabel() == "seconds" and figure.axes[0].get_xlim() == (0, 2.5)


def test_nothing_of_a_site_that_is_elsewhere_and_an_error_of_a_damaged_table(site):
    assert scored_videos(SimpleNamespace(folder=None, cases=site.cases)) == []
    assert scored_videos(SimpleNamespace(folder=site.folder, cases=pd.DataFrame())) == []
    table = site.folder / "evaluation/frames/002_v1.csv"
    table.write_text("second,dice\n2.0,0.5\n1.0,0.5\n")
    with pytest.raises(DataError, match="002_v1.csv: the column 'second' must hold increasing numbers"):
        scored_videos(site)
    table.write_text("time,dice\n2.0,0.5\n")
    with pytest.raises(DataError, match="002_v1.csv: needs the columns 'second' and 'dice'"):
        scored_videos(site)


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
