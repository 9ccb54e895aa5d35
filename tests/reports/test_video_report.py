"""Curves of precision against recall, and models that say the same of every frame of a site."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fedmed.data.structure import Structure
from fedmed.reports.run import read_run
from fedmed.reports.video_report import (
    PhasesReport,
    PresenceReport,
    frames_of,
    precision_recall,
    precision_recall_points,
)

TABLE = "second,true_grasper,true_clipper,p_grasper,p_clipper\n0,1,0,0.9,0.2\n1,0,0,0.6,0.1\n2,1,0,0.4,0.3\n"
PARTS = ("tp", "fp", "fn")


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


def test_where_nothing_is_called_nothing_is_drawn_outside_of_the_panels(fake_run, arranged):
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


def findings(report, fake_run, classes, **sites):
    run = read_run(fake_run(rounds=1, sites=dict.fromkeys(sites, "supervised"), refuse=()))
    run.classes = [Structure(name=name) for name in classes]
    run.result["test"] = {
        name: {"n_cases": 2, "n_frames": 10, "dice_mean": 0.5, **test} for name, test in sites.items()
    }
    return report.findings(run)


def test_one_phase_called_in_every_frame(fake_run):
    def counts(*four):
        return dict(
            zip(("frames_rest>rest", "frames_rest>clip", "frames_clip>rest", "frames_clip>clip"), four, strict=True)
        )

    sentences = findings(PhasesReport(), fake_run, ["rest", "clip"], one=counts(3, 0, 7, 0), two=counts(3, 0, 6, 1))
    assert sentences == [
        "one: the model calls all 10 frames 'rest'. 3 of them are (30 %): the accuracy is that of a model that "
        "looks at no frame."
    ]


def test_tools_that_are_always_or_never_called(fake_run):
    def counts(**labels):
        return {f"{part}_{label}": n for label, three in labels.items() for part, n in zip(PARTS, three, strict=True)}

    always = counts(grasper=(4, 6, 0), hook=(0, 0, 3), bag=(0, 0, 0), clipper=(10, 0, 0))
    right = counts(grasper=(4, 0, 0), hook=(2, 1, 1), bag=(0, 1, 0), clipper=(1, 0, 9))
    names = ["grasper", "hook", "bag", "clipper"]
    assert findings(PresenceReport(), fake_run, names, one=always, two=right) == [
        "one: called in every one of 10 frames: grasper (there in 40 %).",
        "one: there and never called: hook (3 frames).",
    ]
