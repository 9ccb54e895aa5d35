"""Pictures of how a model sees frames, from what a site kept; what is damaged is refused by name."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedmed.errors import DataError
from fedmed.reports.palette import PHASES
from fedmed.reports.run_contents import Site
from fedmed.reports.site_pictures import feature_figure, feature_pictures, read_features

CONTENT = {
    "points": np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 2]], np.float32),
    "explained": np.array([0.6, 0.3], np.float32),
    "phases": np.array([0, 1, 0, 1, 1], np.int16),
    "videos": np.array([0, 0, 1, 1, 1], np.int32),
    "classes": np.array(["preparation", "clipping"]),
    "alignment": np.array([[0.9, 0.1, 0.2], [0.8, 0.7, 0.1]], np.float32),
}


@pytest.fixture
def site(tmp_path):
    """A site that tested the selected model, and a function that writes what it kept of a model."""
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation_first").mkdir()

    def write(folder="evaluation", **changes):
        content = {**CONTENT, **changes}
        np.savez(tmp_path / folder / "features.npz", **{name: one for name, one in content.items() if one is not None})
        return tmp_path / folder / "features.npz"

    return Site("a", "supervised", folder=tmp_path), write


def test_frames_of_two_videos_that_meet_their_phase(site):
    """Of the first video frame 0 meets frame 0 (same), frame 1 meets 0 (other); of the second 0 meets 0 (same), 1 meets
    1 (same), 2 meets 0 (other)."""
    _, write = site
    assert read_features(write()).same_phase == pytest.approx(3 / 5)


def test_before_and_after_are_side_by_side(site):
    written, write = site
    assert feature_pictures(written) == {}
    write("evaluation_first", alignment=None)
    assert feature_pictures(written) == {}, "the starting model alone is no result"
    write()
    pictures = feature_pictures(written)
    assert list(pictures) == ["before training", "selected model"]
    figure = feature_figure(pictures, "a")
    titles = [axes.get_title().strip() for axes in figure.axes]
    assert titles == ["Frames, before training", "Frames, selected model",
                      "Two videos, selected model:\n60% meet their phase"]  # fmt: skip
    drawn = [(to_hex(dots.get_facecolor()[0]), len(dots.get_offsets())) for dots in figure.axes[1].collections]
    assert drawn == [(PHASES[0], 2), (PHASES[1], 3)]
    assert figure.axes[2].lines[0].get_xydata().tolist() == [[0.5, 0.5], [0.5, 1.5]]
    bands = [to_hex(band.get_facecolor()) for band in figure.axes[2].patches]
    assert bands == [PHASES[0], PHASES[1]] * 2, "a band a stretch of one phase, of both videos"


def test_a_run_without_the_files_of_its_sites_has_no_pictures():
    assert feature_pictures(Site("a", "supervised")) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"points": np.zeros((4, 2))},
        {"alignment": np.zeros((3, 3))},
        {"explained": np.zeros(3)},
        {"videos": np.zeros(4)},
        {"phases": np.array([0, 1, 0, 1, 2])},
    ],
)
def test_a_damaged_file_is_refused(site, changes):
    with pytest.raises(DataError, match=r"features.npz: points, phases and videos do not fit together"):
        read_features(site[1](**changes))


def test_a_file_without_a_part_is_refused(site):
    with pytest.raises(DataError, match=r"cannot read the picture .*features.npz"):
        read_features(site[1](points=None))
