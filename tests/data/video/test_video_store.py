import hashlib
import io
import multiprocessing
import pickle
import shutil
from fractions import Fraction

import numpy as np
import pytest

from fedmed import files
from fedmed.data.video import video_store
from fedmed.data.video.stored_video import Extraction, space_needed
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError
from fedmed.files import CACHE_FOLDER, purge


@pytest.fixture
def read(monkeypatch):
    """Counts how many videos are read."""
    opened = []
    monkeypatch.setattr(video_store, "Extraction", lambda *given: opened.append(given[0]) or Extraction(*given))
    return opened


@pytest.fixture
def store(tmp_path, settings):
    return lambda **changes: VideoStore(tmp_path / "cache", settings(**changes))


def names(tmp_path):
    return sorted(path.suffix for path in (tmp_path / "cache" / CACHE_FOLDER).iterdir() if path.suffix != ".lock")


def test_a_video_is_read_once_and_known_by_its_content(write_video, store, read, number_of, tmp_path):
    path = write_video()
    first = store().get(path)
    assert first.frames.shape == (10, 24, 32, 3) and not first.frames.flags.writeable
    assert [number_of(frame) for frame in first.frames] == list(range(0, 50, 5)) and first.kept.all()
    moved = shutil.copy(path, tmp_path / "other name.mp4")
    assert store().get(path).path == store().get(moved).path == first.path and len(read) == 1
    assert names(tmp_path) == [".frames", ".json", ".source", ".source"]


def test_another_content_or_setting_is_noticed(write_video, store, read):
    path = write_video()
    store().get(path)
    for changes in ({"rate": 10}, {"size": (12, 16)}, {"crop": True}, {"drop": ("dark",)}):
        assert len(store(**changes).get(path).frames)
    assert len(read) == 5
    write_video(frames=20)
    assert len(store().get(path)) == 4 and len(read) == 6


def test_only_where_each_nth_frame_is_taken_another_key_says_so(write_video, store, settings):
    """Videos of 25 frames a second that earlier versions have prepared are still used, those of 29.97 not."""
    for rate, same in ((25, True), (Fraction(30000, 1001), False)):
        path = write_video(frames=60, rate=rate)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        before = hashlib.sha256(f"{content}\0{settings().text()}".encode()).hexdigest()
        assert (store().get(path).path.stem == before) is same
        assert store().get(path).facts["rate"] == (5 if same else pytest.approx(4.995, abs=1e-4))


def test_a_note_of_an_earlier_version_spares_reading_the_file(write_video, store, tmp_path, monkeypatch):
    path = write_video(frames=60, rate=Fraction(30000, 1001))
    stored = store().get(path)
    (note,) = (tmp_path / "cache" / CACHE_FOLDER).glob("*.source")
    digest, rate = note.read_text().split()
    assert float(rate) == pytest.approx(29.97, abs=1e-3)
    note.write_text(digest)
    monkeypatch.setattr(video_store.hashlib, "file_digest", None)
    assert store().get(path).path == stored.path and note.read_text() == f"{digest} {rate}"


def test_frames_in_memory_are_not_pickled(write_video, store):
    stored = store().get(write_video())
    total = stored.frames.sum()
    copied = pickle.dumps(stored)
    assert len(copied) < 5000 and pickle.loads(copied).frames.sum() == total


def test_dropped_frames_are_black_and_not_kept(write_video, store, frame):
    frames = [*[frame(20)] * 10, *[np.full((24, 32, 3), 255, np.uint8)] * 5, *[frame(20)] * 5]
    stored = store(drop=("white",)).get(write_video(frames=frames, gop=5))
    assert stored.kept.tolist() == [True, True, False, True] and not stored.frames[2].any()


def test_damage_is_refused_also_when_somebody_else_counted_it(damaged, store, read):
    path = damaged()
    with pytest.raises(DataError, match="is damaged"):
        store().get(path)
    assert store(damage="count").get(path).facts["damaged"] >= 1
    with pytest.raises(DataError, match=r"damaged.mp4: is damaged \(damaged 1, times_back 0, cut_short 0\)"):
        store().get(path)
    assert len(read) == 2


def test_a_refused_video_leaves_nothing(damaged, store, tmp_path):
    with pytest.raises(DataError):
        store().get(damaged())
    assert names(tmp_path) == [".source"]


def test_a_full_disk(write_video, store, tmp_path, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            if self.tell() + memoryview(data).nbytes > 5000:
                raise OSError(28, "No space left on device")
            return super().write(data)

    monkeypatch.setattr(files.os, "fdopen", lambda handle, mode: Full(handle, mode))
    with pytest.raises(DataError, match=r"a.mp4: cannot be prepared .* No space left .* \(it needs .*10 frames"):
        store().get(write_video())
    assert names(tmp_path) == [".source"]
    monkeypatch.undo()
    assert len(store().get(tmp_path / "a.mp4")) == 10


def test_what_a_killed_process_left_is_cleared(write_video, store, tmp_path, read):
    path = write_video()
    stored = store().get(path)
    for suffix in (".json", ".x1.tmp"):
        stored.path.with_suffix(suffix).unlink(missing_ok=True)
    stored.path.with_suffix(".x1.tmp").write_bytes(b"half")
    assert len(store().get(path)) == 10 and len(read) == 2
    assert ".tmp" not in names(tmp_path)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("suffix", [".frames", ".json"])
def test_after_damage_and_flipped_bytes_the_video_is_made_again(write_video, store, suffix, flipped, caplog):
    path = write_video()
    stored = store().get(path)
    whole, file = stored.frames.copy(), stored.path.with_suffix(suffix)
    content = bytearray(file.read_bytes())
    place = content.index(b'"frames": 10') + 10 if suffix == ".json" else len(content) // 2
    content[place] ^= 1
    file.write_bytes(content if flipped else b"{}")
    assert (store().get(path).frames == whole).all() and "is damaged and will be made again" in caplog.text


def test_two_processes_make_a_video_once(write_video, store, read):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    path = write_video()

    def prepare():
        barrier.wait()
        results.put((store(rate=25).get(path).frames.sum(), len(read)))

    workers = [context.Process(target=prepare) for _ in range(2)]
    for worker in workers:
        worker.start()
    (one, first), (other, second) = (results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert {first, second} == {0, 1} and one == other


def test_purge_deletes_videos_too(write_video, store, tmp_path):
    stored = store().get(write_video())
    stored.path.with_suffix(".x1.tmp").write_bytes(b"half")
    (stored.path.parent / "notes.json").write_text("not ours")
    stored.path.with_suffix(".masks").touch()
    assert purge(tmp_path / "cache") == 6
    assert names(tmp_path) == [".json"]


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.avi"])
def test_space_is_foretold(write_video, store, settings, name):
    path = write_video(name)
    stored = store().get(path)
    needed = space_needed([path, path], settings())
    assert needed.bytes == 2 * stored.path.stat().st_size == 2 * 10 * 24 * 32 * 3
    assert needed.words() == "4.61e-05 GB: 20 frames of 24 x 32 pixels, 5 a second"
