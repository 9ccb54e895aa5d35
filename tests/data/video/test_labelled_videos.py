"""Videos with their phases as training reads them."""

import json

import pytest

from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.listed_videos import frames_of_phases, load_labelled_videos
from fedmed.errors import DataError

PHASES = ("preparation", "dissection", "packaging")


@pytest.fixture
def load(write_video, tmp_path):
    """Return a function: two videos of 4 s with these phases a second -> what training, or another list, reads."""

    def load(first, second, key="training", testing=()):
        for name, phases in {"a": first, "b": second}.items():
            write_video(f"{name}.mp4", frames=20, rate=5)
            rows = (f"{n},{PHASES[phase]}" for n, phase in enumerate(phases))
            (tmp_path / f"{name}.csv").write_text("\n".join(["second,phase", *rows]))
        entries = [{"video": f"{name}.mp4", "labels": f"{name}.csv"} for name in "ab"]
        datalist = tmp_path / "datalist.json"
        datalist.write_text(json.dumps({"testing": list(testing), key: entries}))
        settings = FrameSettings((24, 32), 1)
        return load_labelled_videos(tmp_path, datalist, key, settings, tmp_path / "cache", phases=PHASES)

    return load


def test_each_frame_has_its_phase(load):
    prepared = load((0, 0, 1, 1), (1, 1, 1, 2))
    assert [labels.tolist() for labels in prepared.labels] == [[0, 0, 1, 1], [1, 1, 1, 2]]
    assert frames_of_phases(prepared, 3) == [2, 5, 1]


def test_one_phase_alone_is_nothing_to_train_on(load):
    with pytest.raises(DataError, match=r"datalist.json: every frame of 'training' is of the phase 'dissection'"):
        load((1, 1, 1, 1), (1, 1, 1, 1))
    assert frames_of_phases(load((1, 1, 1, 1), (2, 2, 2, 2)), 3) == [0, 4, 4], "of all videos together"
    assert frames_of_phases(load((1, 1, 1, 1), (1, 1, 1, 1), "testing"), 3) == [0, 8, 0], "scored as they are"


def test_videos_that_are_trained_on_and_scored_are_said(load, caplog):
    load((0, 0, 1, 1), (1, 1, 1, 2))
    assert not caplog.text
    load((0, 0, 1, 1), (1, 1, 1, 2), testing=[{"video": "./b.mp4", "labels": "b.csv"}, {"video": "c.mp4"}])
    assert "1 of 2 training videos are also listed for validation or testing, the first b.mp4" in caplog.text
