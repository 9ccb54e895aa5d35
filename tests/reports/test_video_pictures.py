"""Pictures of videos: what is drawn of frames along time, and what is wrong with a damaged file."""

import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed.reports.segmentation_2d_report import frames_with_masks, read_frame
from fedmed.reports.timelines import Timeline, label_rows, read_labels, read_phases, ribbons

CLASSES = np.array(["preparation", "clipping"])


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
