import json

import pytest

from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.listed_videos import load_unlabelled_videos
from fedmed.errors import DataError

SETTINGS = FrameSettings(size=(24, 32), rate=5)


@pytest.fixture
def listed(write_video, tmp_path):
    """Return a function that writes videos and a datalist of them, and loads what training without labels sees."""

    def load(transductive=False, **lists):
        for name in {name for names in lists.values() for name in names}:
            write_video(f"{name}.mp4", frames=20)
        entries = {
            key: [{"video": f"{name}.mp4", **({"labels": "a.csv"} if key == "unlabeled" else {})} for name in names]
            for key, names in lists.items()
        }
        (tmp_path / "datalist.json").write_text(json.dumps(entries))
        return load_unlabelled_videos(tmp_path, tmp_path / "datalist.json", SETTINGS, tmp_path / "cache", transductive)

    return load


def test_videos_of_both_lists_each_once_and_without_labels(listed, caplog):
    prepared = listed(unlabeled=["a", "b"], training=["b", "c"], validation=["d"])
    assert [name.rpartition("/")[2] for name in prepared.names] == ["a.mp4", "b.mp4", "c.mp4"]
    assert prepared.labels is None and len(prepared.videos[0]) == 4
    assert "2 entries of 'unlabeled' carry a label; these labels are ignored" in caplog.text


@pytest.mark.parametrize(("transductive", "names", "words"), [(False, "a", "left out"), (True, "ab", "trained on")])
def test_videos_that_are_tested_are_trained_on_only_where_that_is_said(listed, caplog, transductive, names, words):
    prepared = listed(transductive=transductive, unlabeled=["a", "b"], testing=["b"])
    assert [name.rpartition("/")[2] for name in prepared.names] == [f"{name}.mp4" for name in names]
    assert f"1 videos are also listed for validation or testing and {words}" in caplog.text


def test_no_video_at_all(listed):
    with pytest.raises(DataError, match="none of the lists unlabeled, training has videos to train on"):
        listed(testing=["a"])
