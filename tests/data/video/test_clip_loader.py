import numpy as np
import pytest
import torch

from fedmed.data.video.clips import (
    ClipDataset,
    ClipRule,
    Clips,
    PlainFrames,
    PreparedVideos,
    clip_loader,
    epoch_clips,
    every_frame,
    frame_loader,
    unit_float,
)
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.errors import DataError


@pytest.fixture
def prepared(write_video, tmp_path):
    """Return a function that prepares videos of 50, 37 and 9 frames; keyword arguments change the settings."""

    def make(labels=True, **changes):
        settings = FrameSettings(**{"size": (24, 32), "rate": 25, **changes})
        lengths = (50, 37, 9)
        paths = [write_video(f"v{length}.mp4", frames=length) for length in lengths]
        entries = [{"video": str(path)} for path in paths]
        if labels:
            entries = [entry | {"labels": np.arange(n)} for entry, n in zip(entries, lengths, strict=True)]
        return PreparedVideos(entries, settings, tmp_path / "cache")

    return make


def frames_of(clips):
    """(video, frame) of all clips."""
    return [
        (video, row) for video, rows in zip(clips.videos.tolist(), clips.rows.tolist(), strict=True) for row in rows
    ]


def test_a_batch(prepared, number_of):
    batches = list(clip_loader(prepared(), ClipRule("partition", 4), batch_size=3, steps=5, seed=1))
    assert len(batches) == 5
    for batch in batches:
        assert batch["image"].shape == (3, 4, 3, 24, 32) and batch["image"].dtype == torch.uint8
        assert batch["video"].shape == (3,) and batch["time"].shape == batch["labels"].shape == (3, 4)
        assert torch.equal((batch["time"] * 25).round().long(), batch["labels"])
        for clip, labels in zip(batch["image"], batch["labels"], strict=True):
            assert [number_of(frame) for frame in clip] == labels.tolist()


def test_every_frame_at_most_once_an_epoch(prepared):
    videos = prepared().videos
    clips = epoch_clips(videos, ClipRule("partition", 4), seed=0)
    assert len(clips) == 12 + 9 + 2 and len(set(frames_of(clips))) == clips.rows.size
    again = epoch_clips(videos, ClipRule("partition", 4), seed=0, epoch=1)
    assert not np.array_equal(clips.rows, again.rows)


@pytest.mark.parametrize("rule", [ClipRule("stride", 3, step=2), ClipRule("random", 3), ClipRule("history", 1)])
def test_equal_seeds_give_equal_batches_whatever_the_workers(prepared, rule):
    videos = prepared()

    def made(seed, workers=0):
        return list(clip_loader(videos, rule, 2, 30, seed, workers))

    first, again, shared, other = made(3), made(3), made(3, 2), made(4)
    for name in first[0]:
        for one, two, three in zip(first, again, shared, strict=True):
            assert torch.equal(one[name], two[name]) and torch.equal(one[name], three[name])
    assert any(not torch.equal(one["time"], two["time"]) for one, two in zip(first, other, strict=True))


def test_one_clip_a_video_or_many(prepared):
    videos = prepared().videos
    for strategy in ("stride", "random"):
        assert sorted(epoch_clips(videos, ClipRule(strategy, 8, single=True), 0).videos.tolist()) == [0, 1, 2]
        assert len(epoch_clips(videos, ClipRule(strategy, 8), 0)) == 6 + 4 + 1


def test_short_videos_are_skipped_or_repeated(prepared, caplog):
    videos = prepared().videos
    for epoch in range(2):
        clips = epoch_clips(videos, ClipRule("partition", 16), 0, epoch)
        assert sorted(clips.videos.tolist()) == [0, 0, 0, 1, 1]
    assert caplog.text.count("1 of 3 videos have fewer usable frames than a clip of 16, and are skipped") == 1
    clips = epoch_clips(videos, ClipRule("partition", 16, repeat=True), 0)
    assert clips.rows[clips.videos == 2].tolist() == [[*range(9), *[8] * 7]]
    with pytest.raises(DataError, match="none of 3 videos has the 64 usable frames of a clip"):
        clip_loader(prepared(), ClipRule("partition", 64), 1, 1, 0)


def test_predictions_see_every_frame_with_its_history(prepared):
    batches = list(frame_loader(prepared(), ClipRule("history", 3, interval=0.08), batch_size=10))
    assert torch.cat([batch["video"] for batch in batches]).tolist() == [0] * 50 + [1] * 37 + [2] * 9
    labels = torch.cat([batch["labels"] for batch in batches])
    part = torch.cat([batch["part"] for batch in batches])
    assert part.shape == (96, 3) and torch.allclose(part[:50, -1], torch.arange(50) / 50), "share of the video before"
    assert labels[:, -1].tolist() == [*range(50), *range(37), *range(9)]
    assert labels[[0, 3, 10]].tolist() == [[0, 0, 0], [3, 1, 3], [6, 8, 10]]
    with pytest.raises(DataError, match="an interval of 0.01 s is less than one frame"):
        frame_loader(prepared(), ClipRule("history", 3, interval=0.01), 1)


def test_dropped_frames_are_in_no_clip(write_video, tmp_path, frame):
    frames = [np.full((24, 32, 3), 255, np.uint8) if number % 5 == 2 else frame(20) for number in range(20)]
    path = write_video(frames=frames, rate=5, gop=1)
    videos = PreparedVideos([{"video": path}], FrameSettings((24, 32), 5, drop=("white",)), tmp_path / "cache")
    rules = [ClipRule(strategy, 4) for strategy in ("partition", "stride", "random")]
    for rule in (*rules, ClipRule("history", 2, interval=0.2)):
        rows = epoch_clips(videos.videos, rule, 0).rows
        assert rows.size and not (rows % 5 == 2).any()
    assert len(frame_loader(videos, ClipRule("history", 1), 1)) == 16


def test_single_frames_are_plain_images(prepared):
    videos = prepared()
    clips = every_frame(videos.videos, ClipRule("history", 1))
    plain, raw = PlainFrames(videos, clips), ClipDataset(videos, clips)
    assert len(plain) == 50 + 37 + 9 and plain[60]["image"].shape == (3, 24, 32)
    assert torch.equal(plain[60]["image"], unit_float(raw[60]["image"][0]))
    assert torch.equal(plain.__getitems__([3, 60])["image"][1], plain[60]["image"])


def test_single_items(prepared):
    videos = prepared(labels=False)
    item = ClipDataset(videos, Clips(np.array([1]), np.array([[0, 5]])))[0]
    assert item["image"].shape == (2, 3, 24, 32) and item["image"].dtype == torch.uint8 and "labels" not in item
    assert item["video"] == 1 and item["time"].tolist() == pytest.approx([0, 0.2])


def test_labels_that_do_not_fit(write_video, tmp_path):
    path, settings = write_video(), FrameSettings((24, 32), 5)
    with pytest.raises(DataError, match="a.mp4: has 9 labels for 10 frames"):
        PreparedVideos([{"video": path, "labels": [0] * 9}], settings, tmp_path)
    with pytest.raises(DataError, match="a.mp4: has no labels, but .*a.mp4 has"):
        PreparedVideos([{"video": path, "labels": [0] * 10}, {"video": path}], settings, tmp_path)


def test_no_videos_give_no_loader(tmp_path):
    assert clip_loader(PreparedVideos([], FrameSettings((24, 32)), tmp_path), ClipRule(), 1, 1, 0) is None


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"strategy": "any"}, "strategy is 'any'; use one of"),
        ({"size": 0}, "size is 0"),
        ({"step": 0}, "step is 0"),
        ({"strategy": "history", "size": 4}, "interval is missing"),
        ({"together": 0}, "together is 0"),
    ],
)
def test_wrong_rules(values, match):
    with pytest.raises(DataError, match=match):
        ClipRule(**values)


def test_clips_that_are_compared_come_in_whole_batches(prepared):
    """23 clips: of 2 together the last odd one is dropped, in every epoch, so no batch holds clips of two epochs."""
    videos = prepared().videos
    rule = ClipRule("partition", 4, together=2)
    for epoch in range(3):
        assert len(epoch_clips(videos, rule, 0, epoch)) == 22
    whole = epoch_clips(videos, ClipRule("partition", 4), 0)
    assert np.array_equal(epoch_clips(videos, rule, 0).rows, whole.rows[:22]), "else the clips are the same"


@pytest.mark.parametrize(("together", "clips"), [(2, 22), (3, 6)])
def test_clips_of_different_videos(prepared, together, clips):
    """Of 12, 9 and 2 clips: 11 pairs, and 2 times three."""
    videos, orders = prepared().videos, []
    for epoch in range(3):
        drawn = epoch_clips(videos, ClipRule("partition", 4, together=together, distinct=True), 0, epoch)
        assert len(drawn) == clips
        batches_of_videos = drawn.videos.reshape(-1, together).tolist()
        assert all(len(set(batch)) == together for batch in batches_of_videos)
        assert len(set(frames_of(drawn))) == drawn.rows.size, "every frame at most once an epoch"
        orders.append(batches_of_videos)
    assert together == 3 or orders[0] != orders[1], "batches come in drawn order"


def test_too_few_clips_to_compare(prepared):
    with pytest.raises(DataError, match="3 videos have less than 2 clips of 40 usable frames;"):
        clip_loader(prepared(), ClipRule("partition", 40, together=2), 2, 1, 0)
    with pytest.raises(DataError, match="less than 4 clips of 4 usable frames of different videos"):
        clip_loader(prepared(), ClipRule("partition", 4, together=4, distinct=True), 4, 1, 0)
