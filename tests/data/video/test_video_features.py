"""Features of videos are computed once for an encoder and a video, and found again; what is damaged is made anew."""

import copy
import errno
import logging

import numpy as np
import pytest
import torch
from torch import nn

from fedmed.data.video.clips import PreparedVideos
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.listed_videos import frames_of_phases
from fedmed.data.video.video_features import SUFFIX, FeatureStore, ShuffledVideos, VideoFeatures, encoder_digest
from fedmed.errors import DataError
from fedmed.files import CACHE_FOLDER, purge


class Encoder(nn.Module):
    """Frames (B, 3, H, W) -> (B, 4); notes how many frames it got in each pass, and in which mode."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.passes = nn.Linear(3, 4), nn.BatchNorm1d(4), []

    def forward(self, x):
        assert x.dtype == torch.float32 and x.min() >= 0 and x.max() <= 1 and not torch.is_grad_enabled()
        self.passes.append((len(x), self.training))
        return self.norm(self.linear(x.mean(dim=(2, 3))))


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Encoder()


@pytest.fixture
def prepared(write_video, tmp_path):
    """Two videos of 10 and 15 frames, the second with a white frame that is dropped; labels tell frame and video."""
    white = [np.full((24, 32, 3), 255 if number == 3 else 60 + 4 * number, np.uint8) for number in range(15)]
    entries = [
        {"video": write_video("a.mp4", 10, rate=5), "labels": np.arange(10) % 3},
        {"video": write_video("b.mp4", white, rate=5), "labels": np.arange(15) % 3},
    ]
    return PreparedVideos(entries, FrameSettings((24, 32), 5, drop=("white",)), tmp_path / "cache")


@pytest.fixture
def made(prepared, tmp_path):
    """Return a function: encoder -> the videos' features, by batches of 4 frames."""
    return lambda encoder, cache="cache": VideoFeatures(prepared, encoder, tmp_path / cache, batch_size=4)


def files(tmp_path, cache="cache"):
    return sorted((tmp_path / cache / CACHE_FOLDER).glob(f"*{SUFFIX}"))


def test_a_batch_is_a_whole_video_without_its_dropped_frames(made, encoder, prepared):
    first, second = made(encoder)
    assert first["image"].shape == (1, 4, 10) and second["image"].shape == (1, 4, 14)
    assert second["label"].tolist() == [[n % 3 for n in range(15) if n != 3]]
    assert second["video"].tolist() == [1] * 14 and second["time"].shape == (14, 1)
    assert second["time"][:, 0].tolist() == pytest.approx([n / 5 for n in range(15) if n != 3])
    frames = torch.from_numpy(prepared.videos[1].frames[prepared.videos[1].kept].copy()).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = encoder.eval()(frames)
    assert torch.allclose(second["image"][0].T, expected, atol=1e-6)
    assert frames_of_phases(prepared, 4) == [4 + 4, 3 + 5, 3 + 5, 0], "frame 3 of phase 0 is not kept"


def test_features_are_computed_once(made, encoder, tmp_path):
    features = made(encoder)
    assert not encoder.passes and not files(tmp_path), "nothing before they are asked for"
    first = [batch["image"].clone() for batch in features]
    assert [frames for frames, _ in encoder.passes] == [4, 4, 2, 4, 4, 4, 2] and not any(m for _, m in encoder.passes)
    list(features)
    again = [batch["image"] for batch in made(encoder)]
    assert len(encoder.passes) == 7 and len(files(tmp_path)) == 2
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_another_encoder_computes_its_own(made, encoder, tmp_path):
    list(made(encoder))
    other = copy.deepcopy(encoder)
    list(made(other))
    assert len(other.passes) == 7, "an equal one finds them"
    with torch.no_grad():
        other.norm.running_mean += 1
    list(made(other))
    assert len(other.passes) == 14 and len(files(tmp_path)) == 4


def test_a_renamed_video_keeps_its_features(made, encoder, prepared, tmp_path):
    list(made(encoder))
    moved = tmp_path / "c.mp4"
    (tmp_path / "a.mp4").rename(moved)
    entries = [{"video": moved, "labels": np.zeros(10, int)}]
    again = PreparedVideos(entries, FrameSettings((24, 32), 5, drop=("white",)), tmp_path / "cache")
    list(VideoFeatures(again, encoder, tmp_path / "cache", batch_size=4))
    assert len(encoder.passes) == 7


@pytest.mark.parametrize("damage", ["cut", "empty", "words", "shape", "nan"])
def test_a_damaged_cache_is_made_anew(made, encoder, tmp_path, caplog, damage):
    first = [batch["image"].clone() for batch in made(encoder)]
    path = files(tmp_path)[0]
    whole = path.read_bytes()
    if damage in ("shape", "nan"):
        stored = torch.load(path)["features"]
        torch.save({"features": stored[1:] if damage == "shape" else stored * torch.nan}, path)
    else:
        path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "words": b"not features"}[damage])
    with caplog.at_level(logging.WARNING, "fedmed.data"):
        again = [batch["image"] for batch in made(encoder)]
    assert "damaged" in caplog.text and len(encoder.passes) in (10, 11)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)) and path.read_bytes() == whole


def test_purging_the_cache_finds_them_and_nothing_else(made, encoder, tmp_path):
    list(made(encoder, "other"))
    (tmp_path / "other" / CACHE_FOLDER / f"own{SUFFIX}").write_text("of somebody else")
    assert purge(tmp_path / "other") == 2 and len(files(tmp_path, "other")) == 1


def test_a_full_disk_is_told_and_training_goes_on(made, encoder, tmp_path, caplog, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedmed.data.video.video_features.CaseStore.write", full)
    assert len(list(made(encoder))) == 2 and not files(tmp_path)
    assert caplog.text.count("cannot be written") == 1


def test_what_is_not_a_number_is_refused(made, encoder, tmp_path):
    with torch.no_grad():
        encoder.linear.weight[0, 0] = torch.nan
    with pytest.raises(DataError, match="a.mp4: the encoder's features are NaN"):
        list(made(encoder))
    assert not files(tmp_path)


def test_each_batch_of_frames_can_stop_it(made, encoder):
    calls = []

    def stop():
        calls.append(len(encoder.passes))
        if len(calls) == 3:
            raise InterruptedError

    features = made(encoder)
    with pytest.raises(InterruptedError):
        features.prepare(stop)
    assert calls == [0, 1, 2]
    features.prepare()
    assert len(list(features)) == 2


def test_passes_come_in_drawn_orders_the_same_for_the_same_seed(made, encoder):
    def orders(seed):
        videos = ShuffledVideos(made(encoder), seed)
        return [[int(batch["video"][0]) for batch in videos] for _ in range(20)]

    drawn = orders(1)
    assert drawn == orders(1) and drawn != orders(2)
    assert all(sorted(order) == [0, 1] for order in drawn) and len({tuple(order) for order in drawn}) == 2


def test_what_an_encoder_computes_decides(encoder):
    same = copy.deepcopy(encoder)
    assert encoder_digest(same) == encoder_digest(encoder)
    assert encoder_digest(copy.deepcopy(encoder).half()) != encoder_digest(encoder)
    assert encoder_digest(nn.Sequential(nn.Conv2d(3, 4, 3))) != encoder_digest(nn.Sequential(nn.Conv2d(3, 4, 3)))
    one, other = nn.Conv2d(3, 4, 3, stride=1), nn.Conv2d(3, 4, 3, stride=2)
    other.load_state_dict(one.state_dict())
    assert encoder_digest(one) != encoder_digest(other), "the same tensors in another layer"


def test_mixed_precision_has_files_of_its_own(encoder, prepared, tmp_path):
    plain, mixed = (FeatureStore(tmp_path / "cache", encoder, amp) for amp in (False, True))
    plain.write(prepared.videos[0], torch.zeros(10, 4))
    assert plain.read(prepared.videos[0]) is not None and mixed.read(prepared.videos[0]) is None
