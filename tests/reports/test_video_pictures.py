"""Pictures of videos: labels along time, what a table of predictions calls, and what is wrong with a damaged file."""

import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed.reports.segmentation_2d_report import frames_with_masks, read_frame
from fedmed.reports.timelines import Timeline, held, label_rows, read_labels, read_phases, ribbons
from fedmed.reports.viewed_video import read_predictions

CLASSES = np.array(["preparation", "clipping"])
NAMES = ("grasper", "clipper")


def timeline(times, places):
    seen = np.array(places)[:, None] == np.arange(2)
    return Timeline("best", "a", 0.5, np.array(times, float), seen, seen, tuple(CLASSES))


@pytest.mark.parametrize("draw", [label_rows, ribbons])
def test_short_and_long_videos_are_drawn(draw):
    figure = draw([timeline([0], [1]), timeline(np.arange(700), np.arange(700) // 350)], "site a")
    assert [axes.get_xlabel() for axes in figure.axes] == ["seconds", "minutes"]
    assert figure.axes[1].get_xlim() == (0, pytest.approx(700 / 60))


def test_pictures_are_read_and_damaged_ones_refused(tmp_path):
    facts = {"times": np.arange(3.0), "classes": CLASSES, "f1": 0.5, "case": "a"}
    np.savez(tmp_path / "p.npz", truth=np.array([0, 0, 1]), called=np.array([0, 1, 1]), **facts)
    shown = read_phases(tmp_path / "p.npz", "worst")
    assert shown.truth.argmax(1).tolist() == [0, 0, 1] and shown.called.argmax(1).tolist() == [0, 1, 1]
    np.savez(tmp_path / "p.npz", truth=np.array([0, 0]), called=np.array([0, 1]), **facts)
    with pytest.raises(DataError, match=r"p.npz: times, labels and predictions differ in shape"):
        read_phases(tmp_path / "p.npz", "worst")
    values = {"truth": np.ones((3, 2)), "probabilities": np.full((3, 1), 0.4), "threshold": 0.5}
    np.savez(tmp_path / "l.npz", **values, **facts)
    with pytest.raises(DataError, match=r"l.npz: times, labels and predictions differ in shape"):
        read_labels(tmp_path / "l.npz", "best")


def test_frames_are_drawn_with_their_masks(tmp_path):
    mask = np.zeros((6, 8), np.uint8)
    mask[2:4, 2:6] = 2
    values = {"image": np.full((6, 8, 3), 100, np.uint8), "prediction": mask, "classes": CLASSES, "dice": 1.0}
    np.savez(tmp_path / "f.npz", truth=mask, case="a, 1.0 s", **values)
    shown = read_frame(tmp_path / "f.npz", "best")
    figure = frames_with_masks([shown], "site a", {"clipping": "#ff0000"})
    (drawn,) = figure.axes[0].images
    pixels = drawn.get_array()
    assert np.allclose(pixels[0, 0], 100 / 255) and pixels[2, 2, 0] > pixels[2, 2, 1] == pixels[2, 2, 2]
    assert len(figure.axes) == 2 and len(figure.axes[0].lines) == 1
    np.savez(tmp_path / "f.npz", truth=mask[:5], case="a", **values)
    with pytest.raises(DataError, match="image, truth and prediction are not of one size"):
        read_frame(tmp_path / "f.npz", "best")


def ribbon(seconds, rows, bridge=False):
    return held(np.array(seconds, float), np.array(rows, bool), NAMES, bridge)


def test_rows_that_follow_one_another_are_one_stretch():
    shown = ribbon([0, 1, 2, 3], [[1, 0], [1, 0], [0, 0], [1, 1]])
    assert shown.spans("grasper") == [(0, 2), (3, 1)] and shown.spans("clipper") == [(3, 1)]
    thirds = ribbon(np.round(np.arange(6) / 3, 3), [[1, 0]] * 6)
    assert [length for _, length in thirds.spans("grasper")] == [pytest.approx(2, abs=0.01)]


def test_spans_are_told_in_units_of_time():
    shown = ribbon([0, 1, 2, 3, 8, 9], [[1, 0], [1, 0], [0, 1], [1, 0], [1, 0], [1, 0]])
    assert shown.spans("grasper") == [(0, 2), (3, 1), (8, 2)], "frames between 3 and 8 s were dropped"
    assert shown.spans("clipper", 60) == [(2 / 60, 1 / 60)]
    assert ribbon([0, 1], [[1, 0]] * 2).spans("clipper") == [] and ribbon([4], [[1, 0]]).spans("grasper") == [(4, 1)]


@pytest.mark.parametrize(("bridge", "stretches"), [(False, [(0, 2), (10, 2)]), (True, [(0, 12)])])
def test_a_gap_is_bridged_or_not(bridge, stretches):
    assert ribbon([0, 1, 10, 11], [[1, 0]] * 4, bridge).spans("grasper") == stretches


def test_what_is_there_at_a_time():
    shown = ribbon([1, 2, 10], [[1, 1], [0, 1], [0, 0]])
    assert [shown.at(time) for time in (0.5, 1, 1.9, 2, 9, 10)] == [[], [*NAMES], [*NAMES], ["clipper"], [], []]


def test_a_bundles_table_may_be_of_several_videos(tmp_path):
    """Rows of the video that is viewed; a frame that could not be read is a gap."""
    path, frames = tmp_path / "p.csv", tmp_path / "frames"
    frames.mkdir()
    head = "image,second,phase,p_first,p_second,error\n"
    path.write_text(
        head + "a.mp4,0,,,,damaged\na.mp4,1,first,0.9,0.1,\nb.mp4,0,second,0.2,0.8,\nframes/1.png,7,first,0.6,0.4,\n"
    )
    assert read_predictions(path, video=tmp_path / "a.mp4").spans("first") == [(1, 1)]
    assert read_predictions(path, video=tmp_path / "b.mp4", shift=0.0).spans("second") == [(0, 1)]
    assert read_predictions(path, video=frames, shift=7.0).spans("first") == [(0, 1)]
    with pytest.raises(DataError, match=r"p.csv: has no frame of c.mp4; its first row is of a.mp4"):
        read_predictions(path, video=tmp_path / "c.mp4")
    with pytest.raises(DataError, match=r"line 2: write seconds in order"):
        path.write_text(head + "1.png,,first,0.9,0.1,\n")
        read_predictions(path, video=frames)


def test_of_phases_the_likeliest_is_called_and_tools_by_the_threshold(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("second,true_first,p_first,p_second,p_grasper\n0,1,0.3,0.2,0.4\n1,1,0.3,0.4,0.7\n")
    predictions = read_predictions(path, ("first", "second"), 0.5)
    assert predictions.names == ("first", "second", "grasper")
    assert predictions.present.tolist() == [[True, False, False], [False, True, True]]
    for column in ("true_phase", "phase"):
        path.write_text(f"second,{column},p_first,p_second\n0,first,0.4,0.2\n1,first,0.1,0.3\n")
        assert read_predictions(path).present.tolist() == [[True, False], [False, True]]
