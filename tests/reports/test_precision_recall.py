"""Curves of precision against recall, from tables of frames."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fedmed.reports.run import read_run
from fedmed.reports.video_report import frames_of, precision_recall, precision_recall_points

TABLE = "second,true_grasper,true_clipper,p_grasper,p_clipper\n0,1,0,0.9,0.2\n1,0,0,0.6,0.1\n2,1,0,0.4,0.3\n"


def test_points_worked_out_by_hand():
    recall, precision = precision_recall_points(np.array([True, False, True, False]), np.array([0.9, 0.6, 0.6, 0.1]))
    assert recall.tolist() == [0.5, 1, 1] and precision.tolist() == pytest.approx([1, 2 / 3, 0.5])
    assert precision_recall_points(np.zeros(3, bool), np.ones(3)) is None


def test_a_panel_a_label_and_a_curve_a_site_that_shows_it(fake_run):
    run = read_run(fake_run())
    assert frames_of(run) == {}
    for site in run.sites[:2]:
        frames = site.folder / "evaluation" / "frames"
        frames.mkdir()
        (frames / "001_a.csv").write_text(TABLE)
    assert [len(frames) for frames in frames_of(run).values()] == [3, 3]
    figure = precision_recall(run)
    assert [axes.get_title() for axes in figure.axes] == ["grasper", "clipper"]
    assert [len(axes.lines) for axes in figure.axes] == [4, 0], "of each site a curve and the threshold"


def test_where_nothing_is_called_nothing_is_drawn_outside_of_the_panels(fake_run):
    """A line without a point lies at the figure's corner for the layout, which then leaves no room for the panels."""
    run = read_run(fake_run())
    frames = run.sites[0].folder / "evaluation" / "frames"
    frames.mkdir()
    (frames / "001_a.csv").write_text(TABLE.replace("0.9", "0.3"))
    figure = precision_recall(run)
    assert [len(axes.lines) for axes in figure.axes] == [2, 0]
    (frames / "001_a.csv").write_text(TABLE.replace("0.9", "0.3").replace("0.6", "0.2"))
    figure = precision_recall(run)
    assert [len(axes.lines) for axes in figure.axes] == [1, 0]
    FigureCanvasAgg(figure).draw()
    assert all(axes.get_tightbbox().x0 > 0 for axes in figure.axes)
