"""Labels by time, and everything that may be wrong with a table of them."""

from fractions import Fraction

import numpy as np
import pytest

from fedmed.data.video.label_table import read_label_table
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError

PHASES, TOOLS = ("preparation", "dissection"), ("grasper", "clipper")


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a table of 10 s, a row a second, or other rows."""

    def write(rows=None, header="second,phase,grasper,clipper"):
        rows = [f"{n},{PHASES[n > 4]},{n % 2},0" for n in range(10)] if rows is None else rows
        path = tmp_path / "a.csv"
        path.write_text("\n".join([header, *rows]) + "\n")
        return path

    return write


def test_the_row_that_holds_at_a_time(table, video):
    read = read_label_table(table(), PHASES, TOOLS)
    for rate in (1.0, 2.0, 3.0, 0.7):
        stored = video(rate=rate)
        seconds = [int(number / rate + 1e-6) for number in range(len(stored))]  # the slow, obvious way
        assert read.phases_of(stored).tolist() == [second > 4 for second in seconds]
        assert read.tools_of(stored).tolist() == [[second % 2, 0] for second in seconds]
    assert read.phases_of(stored).dtype == np.int64 and read.tools_of(stored).dtype == np.uint8


@pytest.mark.parametrize("fps", [Fraction(30000, 1001), Fraction(60000, 1001), Fraction(25)])
def test_rows_of_frames_are_found_whatever_the_rate_of_the_video(table, write_video, settings, tmp_path, fps):
    """A row for every tenth frame that is taken, at the time of the video's own frame."""
    count, every = int(20 * fps), 10 * round(fps / 5)
    rows = [f"{number / float(fps):.10g},{PHASES[number // every % 2]},1,0" for number in range(0, count, every)]
    read = read_label_table(table(rows), PHASES, TOOLS)
    stored = VideoStore(tmp_path / "cache", settings(rate=5)).get(write_video(frames=count, rate=fps))
    assert read.rows_of(stored).tolist() == [number // 10 for number in range(len(stored))]


def test_frames_at_their_own_times(table, video, tmp_path):
    rows = [f"{second},dissection,1,0" for second in (16, 23, 33, 40)]
    read = read_label_table(table(rows), PHASES, TOOLS)
    stored = video(31.0, None, [0.0, 7.0, 17.0, 24.0], tmp_path, 16.0)
    assert read.rows_of(stored).tolist() == [0, 1, 2, 3]


def test_what_is_not_asked_for_is_not_looked_at(table, video):
    path = table([f"{n},what,7,0" for n in range(10)])
    assert read_label_table(path, tools=("clipper",)[:0]).tools is None
    every = read_label_table(table(), None, None)
    assert (every.phase_names, every.tool_names) == (PHASES, TOOLS)
    with pytest.raises(DataError, match="was read without phases"):
        read_label_table(table()).phases_of(video())


@pytest.mark.parametrize(
    ("number", "row", "words"),
    [
        (3, "3,preperation,1,0", r"line 5: the phase 'preperation' is unknown; use preparation, dissection \(did you"),
        (3, "3,,1,0", "line 5: the phase '' is unknown"),
        (3, "3,dissection,2,0", "line 5: 'grasper' is '2'"),
        (3, "3,dissection,nan,0", "line 5: 'grasper' is 'nan'"),
        (3, "3,dissection,,0", "line 5: 'grasper' is ''"),
        (3, "nan,dissection,1,0", "line 5: second is 'nan'"),
        (3, "-1,dissection,1,0", "line 5: second is '-1'"),
        (3, "1,dissection,1,0", "line 5: the time goes from 2 to 1 s"),
        (3, "2,dissection,1,0", "line 5: the time goes from 2 to 2 s"),
        (3, "3,dissection,1", "line 5: has 3 values for 4 columns"),
    ],
)
def test_wrong_rows(table, number, row, words):
    rows = [f"{n},preparation,0,0" for n in range(10)]
    rows[number] = row
    with pytest.raises(DataError, match=words):
        read_label_table(table(rows), PHASES, TOOLS)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("time,phase,grasper,clipper", "line 1: the tool 'time' is unknown|'second' is missing"),
        ("second,step,grasper,clipper", "line 1: the tool 'step' is unknown"),
        ("second,phase,graspers,clipper", r"the tool 'graspers' is unknown; use grasper, clipper \(did you mean 'gr"),
        ("second,phase,grasper,grasper", "line 1: a column is there twice"),
    ],
)
def test_wrong_columns(table, header, words):
    with pytest.raises(DataError, match=words):
        read_label_table(table(header=header), PHASES, TOOLS)


def test_a_missing_column_and_no_table(table, tmp_path):
    with pytest.raises(DataError, match="the column 'clipper' is missing"):
        read_label_table(table(["0,preparation,1"], "second,phase,grasper"), PHASES, TOOLS)
    with pytest.raises(DataError, match="no rows of labels"):
        read_label_table(table([]), PHASES, TOOLS)
    with pytest.raises(DataError, match="gone.csv: the table of labels cannot be read"):
        read_label_table(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(14.0, "is shorter than its video: line 11 is of 9 s, and a.mp4 ends at 14 s"), (8.0, "is longer than its video")],
)
def test_a_table_of_another_length(table, video, seconds, words):
    read = read_label_table(table(), PHASES, TOOLS)
    assert len(read.rows_of(video(11.0))) == 11 and len(read.rows_of(video(9.0))) == 9  # one interval is allowed
    with pytest.raises(DataError, match=words):
        read.rows_of(video(seconds))


def test_a_table_of_another_rate_or_another_beginning(table, video):
    rows = [f"{25 * n},preparation,0,0" for n in range(10)]
    with pytest.raises(DataError, match="longer than its video.*25 times as far: perhaps 'second' holds numbers of"):
        read_label_table(table(rows), PHASES, TOOLS).rows_of(video())
    rows = [f"{5 + n},preparation,0,0" for n in range(10)]
    with pytest.raises(DataError, match="line 2 is of 5 s, but a.mp4 begins at 0 s"):
        read_label_table(table(rows), PHASES, TOOLS).rows_of(video(15.0))


def test_a_gap_counts_where_a_frame_lies(table, video):
    rows = [f"{n},preparation,0,0" for n in range(10) if n not in (4, 5)]
    read = read_label_table(table(rows), PHASES, TOOLS)
    with pytest.raises(DataError, match=r"no row from line 5 \(3 s\) to line 6 \(6 s\).*the frame of a.mp4 at 4 s"):
        read.rows_of(video())
    assert read.rows_of(video(9.5, 1 / 3)).tolist() == [0, 3, 4, 7]
