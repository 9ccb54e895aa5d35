import numpy as np
import pytest

from fedmed.data.video.clips import edges, history, partition, random_order, stride
from fedmed.data.video.frame_settings import frames_between
from fedmed.errors import DataError


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_parts_of_a_video():
    expected = [0, 6, 12, 19, 25, 32, 38, 45, 51, 57, 64, 70, 77, 83, 90, 96, 103]
    assert edges(103, 16).tolist() == expected and set(np.diff(edges(103, 16))) == {6, 7}


@pytest.mark.parametrize(("length", "size"), [(103, 16), (16, 16), (31, 16), (7, 1), (640, 8)])
def test_partition_takes_one_frame_of_each_part_and_none_twice(rng, length, size):
    clips = partition(length, size, rng)
    assert clips.shape == (length // size, size)
    assert (np.diff(clips, axis=1) > 0).all() and len(np.unique(clips)) == clips.size
    bounds = edges(length, size)
    assert ((bounds[:-1] <= clips) & (clips < bounds[1:])).all()


def test_partition_of_a_short_video_gives_no_clip(rng):
    assert partition(5, 16, rng).shape == (0, 16)


def test_partition_reaches_every_frame(rng):
    seen = {frame for _ in range(60) for frame in partition(23, 4, rng).ravel().tolist()}
    assert seen == set(range(23))


def test_stride(rng):
    clips = np.stack([stride(20, 4, 5, rng) for _ in range(200)])
    assert (np.diff(clips, axis=1) == 5).all() and set(clips[:, 0].tolist()) == set(range(5))
    assert stride(7, 4, 3, rng).tolist() == [0, 3, 6, 6]


def test_random_order(rng):
    clips = np.stack([random_order(6, 3, rng) for _ in range(300)])
    assert (np.diff(clips, axis=1) > 0).all() and set(clips.ravel().tolist()) == {1, 2, 3, 4, 5}
    assert len({tuple(clip) for clip in clips.tolist()}) == 10
    assert random_order(3, 4, rng).tolist() == [1, 2, 2, 2] and random_order(1, 2, rng).tolist() == [0, 0]


def test_history():
    assert history([0, 3, 6], 2, 4).tolist() == [[0, 0, 0, 0], [3, 3, 1, 3], [0, 2, 4, 6]]
    assert history(6, 2, 4, kept=[True] * 4 + [False] + [True] * 2).tolist() == [0, 2, 6, 6]
    assert history(5, 1, 1).tolist() == [5]


def test_seconds_between_frames():
    assert frames_between(0.2, 25) == 5 and frames_between(1, 1) == 1 and frames_between(0.2, 24) == 5
    for seconds in (0.2, 0.0, -1.0, float("nan")):
        with pytest.raises(DataError, match="is less than one frame at 1 .*'frame_interval' and 'frame_rate'"):
            frames_between(seconds, 1)


def test_sizes_below_one(rng):
    for wrong in (lambda: stride(0, 4, 1, rng), lambda: edges(4, 0), lambda: history(1, 0, 2)):
        with pytest.raises(DataError, match="use at least 1 of each"):
            wrong()
