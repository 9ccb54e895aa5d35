"""Tables of phases as people write them: starts, ranges, mm:ss."""

import numpy as np
import pytest

from fedmed.data.prepare.video_inspect import DEFAULT, prepare_video
from fedmed.data.prepare.video_layouts.plain import Plain
from fedmed.data.video.label_table import read_label_table, time_of
from fedmed.errors import DataError

PHASES = ("prep", "clip", "dissect")
WANTED = [0] * 5 + [1] * 5 + [2] * 30  # a frame a second


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a table of these lines and reads its phases."""

    def read(*lines):
        path = tmp_path / "a.csv"
        path.write_text("\n".join(lines) + "\n")
        return read_label_table(path, PHASES)

    return read


@pytest.mark.parametrize(
    "lines",
    [
        ("second,phase", "0,prep", "5,clip", "10,dissect"),
        ("start,phase", "0,prep", "5,clip", "10,dissect"),
        ("Start;Phase", "0:00;prep", "00:05;clip", "0:00:10;dissect"),
        ("start,end,phase", "0,5,prep", "5,10,clip", "10,40,dissect"),
        ("start,end,phase", "0,4,prep", "5,9,clip", "10,39,dissect"),  # seconds as people count them
        ("phase,start,end", "prep,00:00,00:05", "clip,00:05,00:10", "dissect,00:10,00:40.0"),
        ("second,end,phase", "0,5,prep", "5,10,clip", "10,,dissect"),
        ("second,phase", *(f"0:{n:02},{PHASES[phase]}" for n, phase in enumerate(WANTED))),
    ],
)
def test_a_phase_holds_until_the_next(table, video, lines):
    assert table(*lines).phases_of(video(40.0)).tolist() == WANTED
    assert table(*lines).phases_of(video(40.0, 4.0)).tolist() == np.repeat(WANTED, 4).tolist()
    assert table(*lines).lasting(40.0) == {"prep": 5, "clip": 5, "dissect": 30}


def test_times():
    times = {"7": 7, "7.5": 7.5, "01:30": 90, "90:00": 5400, "1:02:03.5": 3723.5, "0:00:00": 0, "1:2": 62}
    assert {text: time_of(text) for text in times} == times
    others = ("", "-1", "nan", "inf", "1:60", "1:60:00", "0:01:02:03", "1:", ":5", "-0:05", "5 s")
    assert [text for text in others if not np.isnan(time_of(text))] == []


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("start,end,phase", "0,5,prep", "9,40,clip"), "line 2 ends at 5 s and line 3 begins at 9 s: nothing is said"),
        (("start,end,phase", "0,9,prep", "5,40,clip"), "line 2 ends at 9 s and line 3 begins at 5 s: both hold"),
        (("start,end,phase", "0,5,prep", "5,4,clip"), "line 3: ends at 4 s, before it begins at 5 s"),
        (("start,end,phase", "0,,prep", "5,40,clip"), "line 2: end is ''"),
        (("start,end,phase", "0,5,prep", "5,0:4x,clip"), "line 3: end is '0:4x'"),
        (("start,second,phase", "0,0,prep"), "line 1: both 'second' and 'start' are there"),
        (("end,phase", "5,prep"), "line 1: the column 'second' is missing"),
        (("start,phase", "0,prep", "0:00,clip"), "line 3: the time goes from 0 to 0 s"),
    ],
)
def test_times_with_mistakes(table, lines, words):
    with pytest.raises(DataError, match=words):
        table(*lines)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("start,end,phase", "0,5,prep", "5,30,clip"), "is shorter than its video: line 3 ends at 30 s"),
        (("start,end,phase", "0,5,prep", "5,50,clip"), "is longer than its video: line 3 ends at 50 s"),
        (("second,phase", "0,prep", "125,clip"), "is longer than its video: line 3 is of 125 s.*numbers of frames"),
        (("second,phase", "10,prep", "25,clip"), "line 2 is of 10 s, but a.mp4 begins at 0 s"),
        (("second,phase", *(f"{n},prep" for n in range(20))), "is shorter than its video"),  # no starts: a row a second
        (("second,phase,grasper", "0,prep,0", "5,clip,1"), "is shorter than its video"),  # of tools nobody knows
    ],
)
def test_a_table_of_another_video(table, video, lines, words):
    with pytest.raises(DataError, match=words):
        table(*lines).rows_of(video(40.0))


@pytest.mark.parametrize(
    ("lines", "noted"),
    [
        (("second,phase", "0,prep", "0:00.4,clip"), ["a row for each start: the last, 'clip', holds from 0.4 s to"]),
        (("start,phase", "0,prep"), ["a row for each start: the last, 'prep', holds from 0 s to the end at 2 s"]),
        (("start,end,phase", "0,1,prep", "1,2,clip"), []),
    ],
)
def test_preparation_writes_until_when_each_row_holds(write_video, tmp_path, lines, noted):
    path = write_video()
    path.with_suffix(".csv").write_text("\n".join(lines))
    layout = Plain()
    case = prepare_video(layout.find(tmp_path)[0], layout, tmp_path / "staging", DEFAULT)
    assert case.faults == [] and case.columns == ("phase",)
    assert len(case.notes) == len(noted) and all(map(str.startswith, case.notes, noted))
    assert case.lasting == ({"prep": 2} if len(lines) == 2 else {"prep": 1, "clip": 2 if noted else 1})
    written = read_label_table(case.table, None)
    assert written.changes and written.phases_of(case.stored).tolist() == [0, len(lines) - 2]
