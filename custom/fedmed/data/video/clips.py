"""Clips of videos: which frames each has, in which order they are drawn, and a loader of them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import DataLoader
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset

from fedmed.data.video.frame_settings import FrameSettings, frames_between
from fedmed.data.video.stored_video import StoredVideo
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.data")
SKIPPED = "%d of %d videos have fewer usable frames than a clip of %d, and are skipped"
STRATEGIES = ("partition", "stride", "random", "history")
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class ClipRule:
    """Rule by which videos are cut into clips; DataError for a value outside its range."""

    strategy: str = "partition"  # stride, random, or history: each frame once an epoch, with what was before
    size: int = 16  # frames of a clip, k; a single frame is ClipRule("history", 1)
    step: int = 1  # frames from one to the next, of stride
    interval: float | None = None  # seconds from one to the next, of history
    single: bool = False  # whether stride and random draw one clip a video and epoch, not ⌊length / size⌋
    repeat: bool = False  # whether the last frame of a video shorter than a clip is repeated, not the video skipped
    together: int = 1  # clips that are compared; an epoch gives whole batches of so many, and drops what is left over
    distinct: bool = False  # whether those are of different videos

    def __post_init__(self) -> None:
        wrong = {
            f"strategy is {self.strategy!r}; use one of {', '.join(STRATEGIES)}": self.strategy not in STRATEGIES,
            f"size is {self.size!r}; use frames of a clip, at least 1": self.size < 1,
            f"step is {self.step!r}; use frames, at least 1": self.step < 1,
            f"together is {self.together!r}; use clips, at least 1": self.together < 1,
            "interval is missing; give the seconds from one frame of a history to the next": (
                self.strategy == "history" and self.size > 1 and self.interval is None
            ),
        }
        for message, bad in wrong.items():
            if bad:
                raise DataError(f"clips: {message}")

    def clips(self, video: StoredVideo, rng: np.random.Generator) -> Rows:
        """(n, size) the clips of a video in one epoch."""
        rows = np.flatnonzero(video.kept).astype(np.int64)
        if self.strategy == "history":
            return self.with_history(video, rows)
        if len(rows) < self.size and not (self.repeat and len(rows)):
            log.info("%s: has %d usable frames, fewer than a clip; it is skipped", video.source, len(rows))
            return np.empty((0, self.size), np.int64)
        if len(rows) < self.size:
            return rows[np.minimum(np.arange(self.size), len(rows) - 1)][None]
        if self.strategy == "partition":
            return rows[partition(len(rows), self.size, rng)]
        number = 1 if self.single else len(rows) // self.size
        if self.strategy == "stride":
            return rows[np.stack([stride(len(rows), self.size, self.step, rng) for _ in range(number)])]
        return rows[np.stack([random_order(len(rows), self.size, rng) for _ in range(number)])]

    def with_history(self, video: StoredVideo, rows: Rows) -> Rows:
        """(n, size) clips that end with the frames ``rows``; single pictures have no history but themselves."""
        if video.facts.get("single"):
            return np.repeat(rows[:, None], self.size, axis=1)
        step = 1 if self.interval is None else frames_between(self.interval, video.facts["rate"])
        return history(rows, step, self.size, video.kept)


@dataclass(frozen=True)
class Clips:
    """Clips of several videos: the number of the video (n,), and frames (n, k)."""

    videos: NDArray[np.int64]
    rows: Rows

    def __len__(self) -> int:
        return len(self.videos)

    def take(self, places: Any) -> "Clips":
        return Clips(self.videos[places], self.rows[places])


def epoch_clips(videos: Sequence[StoredVideo], rule: ClipRule, seed: int, epoch: int = 0) -> Clips:
    """The clips of one epoch in drawn order; each video's draws depend on its place in the list only.

    Every epoch has the same number of them.
    """
    draws = (np.random.default_rng(derive_seed(seed, "clips", epoch, number)) for number in range(len(videos)))
    parts = [rule.clips(video, rng) for video, rng in zip(videos, draws, strict=True)]
    if (short := sum(not len(rows) for rows in parts)) and epoch == 0:  # the same in every epoch
        log.warning(SKIPPED, short, len(videos), rule.size)
    order = np.random.default_rng(derive_seed(seed, "order of clips", epoch))
    clips = joined(parts, rule.size)
    clips = clips.take(order.permutation(len(clips)))
    batches = _apart(clips.videos, rule.together) if rule.distinct else np.arange(len(clips))
    batches = batches[: len(batches) // rule.together * rule.together].reshape(-1, rule.together)
    return clips.take((order.permutation(batches) if rule.distinct else batches).ravel())


def training_clips(videos: Sequence[StoredVideo], rule: ClipRule, seed: int, count: int) -> Clips:
    """``count`` clips: epoch after epoch, the last one in part.

    Raises:
        DataError: an epoch has no clips, since every video is shorter than one, or too few that are compared.
    """
    parts: list[Clips] = []
    while (held := sum(map(len, parts))) < count:
        clips = epoch_clips(videos, rule, seed, len(parts))
        if not len(clips):
            different = " of different videos" if rule.distinct else ""
            none_long = f"none of {len(videos)} videos has the {rule.size} usable frames of a clip"
            fewer = f"{len(videos)} videos have less than {rule.together} clips of {rule.size} usable frames{different}"
            remedy = "use shorter clips, a higher rate, more videos, or repeat=True"
            raise DataError(f"{none_long if rule.together == 1 else fewer}; {remedy}")
        parts.append(clips.take(slice(count - held)))
    return Clips(np.concatenate([part.videos for part in parts]), np.concatenate([part.rows for part in parts]))


def _apart(videos: NDArray[np.int64], together: int) -> NDArray[np.int64]:
    """Places in an order in which each ``together`` clips are of different videos; few are left out.

    The videos with the most clips left come first, so that they do not remain alone at the end.
    """
    waiting = {video: np.flatnonzero(videos == video).tolist() for video in dict.fromkeys(videos.tolist())}
    chosen: list[int] = []
    while len(waiting) >= together:
        fullest = sorted(waiting, key=lambda video: -len(waiting[video]))[:together]
        chosen += [waiting[video].pop() for video in fullest]
        waiting = {video: places for video, places in waiting.items() if places}
    return np.array(chosen, np.int64)


def every_frame(videos: Sequence[StoredVideo], rule: ClipRule) -> Clips:
    """A clip for each kept frame, with its history, in the order of videos and time: for predictions."""
    return joined([rule.with_history(video, np.flatnonzero(video.kept)) for video in videos], rule.size)


def joined(parts: Sequence[Rows], size: int) -> Clips:
    """The clips of videos, (n, size) of each, in the order of the videos."""
    numbers = [np.full(len(rows), number, np.int64) for number, rows in enumerate(parts)]
    return Clips(np.concatenate([np.empty(0, np.int64), *numbers]), np.concatenate([np.empty((0, size), int), *parts]))


def stride(length: int, size: int, step: int, rng: np.random.Generator) -> Rows:
    """(size,) every ``step``-th frame from a drawn one; of a short video from the first, and its last is repeated."""
    _check(length, size, step)
    first = rng.integers(max(1, length - (size - 1) * step))
    rows: Rows = np.minimum(first + step * np.arange(size), length - 1)
    return rows


def random_order(length: int, size: int, rng: np.random.Generator) -> Rows:
    """(size,) distinct frames drawn uniformly from 1..length−1 in the order of time; the reference leaves out frame 0.

    Where there are fewer, all of them, and the last is repeated.
    """
    _check(length, size)
    first = min(1, length - 1)
    drawn = np.sort(rng.choice(np.arange(first, length), min(size, length - first), replace=False))
    return np.concatenate([drawn, np.full(size - len(drawn), drawn[-1])])


def edges(length: int, size: int) -> Rows:
    """(size + 1,) where the ``size`` equal parts of a video begin and end: part i is [⌊iL/k⌋, ⌊(i+1)L/k⌋)."""
    _check(length, size)
    return np.arange(size + 1, dtype=np.int64) * length // size


def partition(length: int, size: int, rng: np.random.Generator) -> Rows:
    """(⌊length / size⌋, size) clips with one frame of each part, in the order of time; no frame occurs twice.

    Each part is shuffled once, and clip c takes its c-th frame. A video shorter than a clip gives none.
    """
    bounds, clips = edges(length, size), length // size
    columns = [begin + rng.permutation(end - begin)[:clips] for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]
    return np.stack(columns, axis=1).astype(np.int64)


def history(index: ArrayLike, interval: int, size: int, kept: Sequence[bool] | NDArray[np.bool_] | None = None) -> Rows:
    """(..., size) the frames before ``index``, ``interval`` frames apart, and last ``index`` itself.

    Where there is no such frame, the current one stands in its place: before the beginning, or one not ``kept``.

    Args:
        index: frames, of any shape.
        interval: in frames, at least 1; see :func:`fedmed.data.video.frame_settings.frames_between` for seconds.
        size: frames of a clip.
        kept: (length,) which frames may be used.

    Raises:
        DataError: an interval or a size below 1.
    """
    _check(1, size, interval)
    now = np.asarray(index, np.int64)[..., None]
    past = now - interval * np.arange(size - 1, -1, -1)
    missing = past < 0
    if kept is not None:
        missing |= ~np.asarray(kept, bool)[np.maximum(past, 0)]
    return np.where(missing, now, past)


def _check(length: int, size: int, step: int = 1) -> None:
    if min(length, size, step) < 1:
        raise DataError(f"a clip of {size} frames, {step} apart, of a video of {length} frames: use at least 1 of each")


class PreparedVideos:
    """The videos of a list, prepared, with their labels by frame.

    Args:
        entries: each with ``video``, a file or a folder of frames, and perhaps ``labels``, an array with one line a
            frame: line k belongs to frame k of the store, at k / rate seconds, dropped or not. All entries have labels,
            or none.
        settings, cache_dir: see :class:`fedmed.data.video.video_store.VideoStore`. Videos that are not prepared yet are
            prepared now.

    Raises:
        DataError: a video that cannot be used, labels of another length, or entries with and without labels.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]], settings: FrameSettings, cache_dir: Path | str) -> None:
        store = VideoStore(cache_dir, settings)
        self.videos: list[StoredVideo] = [store.get(entry["video"]) for entry in entries]
        self.names = [str(entry["video"]) for entry in entries]
        labelled = [entry["video"] for entry in entries if entry.get("labels") is not None]
        if labelled and len(labelled) < len(entries):
            without = next(entry["video"] for entry in entries if entry.get("labels") is None)
            raise DataError(f"{without}: has no labels, but {labelled[0]} has; list them apart")
        self.labels = [torch.as_tensor(np.asarray(entry["labels"])) for entry in entries] if labelled else None
        for video, labels in zip(self.videos, self.labels or (), strict=False):
            if len(labels) != len(video):
                raise DataError(f"{video.source}: has {len(labels)} labels for {len(video)} frames; give one a frame")


class ClipDataset(Dataset[dict[str, Tensor]]):
    """Clips as dictionaries of plain tensors; whole batches are read at once.

    Each has ``image`` (k, 3, H, W) uint8, ``video`` () int64: the place in the list, ``time`` (k,) float32 seconds from
    the first frame, ``part`` (k,) float32 share of the video before each, and, of labelled videos, ``labels`` (k, ...).

    Args:
        prepared: the videos.
        clips: which frames.
    """

    def __init__(self, prepared: PreparedVideos, clips: Clips) -> None:
        self.prepared, self.clips = prepared, clips

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: value[0] for name, value in self.__getitems__([index]).items()}

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """A batch: each tensor has a first dimension of clips."""
        chosen = self.clips.take(np.asarray(indices))
        pairs = list(zip(chosen.videos.tolist(), chosen.rows, strict=True))
        videos, labels = self.prepared.videos, self.prepared.labels
        height, width = videos[0].frames.shape[1:3]
        image = np.empty((*chosen.rows.shape, 3, height, width), np.uint8)
        for clip, (number, rows) in zip(image, pairs, strict=True):
            clip[:] = videos[number].frames[rows].transpose(0, 3, 1, 2)
        times = np.stack([videos[number].times[rows] for number, rows in pairs])
        length = np.array([videos[number].facts["seconds"] for number, _ in pairs])
        batch = {
            "image": torch.from_numpy(image),
            "video": torch.from_numpy(chosen.videos),
            "time": torch.from_numpy(times.astype(np.float32)),
            "part": torch.from_numpy((times / length[:, None]).astype(np.float32)),
        }
        if labels is not None:
            batch["labels"] = torch.stack([labels[number][torch.from_numpy(rows)] for number, rows in pairs])
        return batch


class PlainFrames(ClipDataset):
    """Single frames of clips of one: ``image`` is (3, H, W) float32 in [0, 1]."""

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """A batch of (B, 3, H, W)."""
        batch = super().__getitems__(indices)
        return {**batch, "image": unit_float(batch["image"][:, 0])}


def unit_float(image: Tensor) -> Tensor:
    """float32 in [0, 1] of uint8 images, where they lie; floats as they are."""
    return image.float().div_(255) if image.dtype == torch.uint8 else image


def clip_loader(
    prepared: PreparedVideos,
    rule: ClipRule,
    batch_size: int,
    steps: int,
    seed: int,
    num_workers: int = 0,
) -> DataLoader | None:
    """Return a loader of exactly ``steps`` full batches; None without videos.

    Clips come epoch after epoch, each in an order of its own. The same seed gives the same batches in every process
    and with any number of workers, so a site that resumes a round draws what it had drawn.

    Args:
        prepared, rule: the videos, and how they are cut.
        batch_size, steps: clips in a batch, and batches.
        seed: of clips and order.
        num_workers: processes that load; reading from the store seldom needs any.

    Raises:
        DataError: no video is long enough for a clip, or less than one clip a batch.
    """
    if batch_size < 1 or steps < 1:
        raise DataError(f"{steps} batches of {batch_size} clips: use at least 1 of each")
    if not prepared.videos:
        return None
    clips = training_clips(prepared.videos, rule, seed, batch_size * steps)
    return batches_of(ClipDataset(prepared, clips), batch_size, num_workers)


def frame_loader(prepared: PreparedVideos, rule: ClipRule, batch_size: int, num_workers: int = 0) -> DataLoader:
    """Return a loader of every kept frame with its history, in the order of videos and time: for predictions."""
    return batches_of(ClipDataset(prepared, every_frame(prepared.videos, rule)), batch_size, num_workers)


def batches_of(dataset: ClipDataset, batch_size: int, num_workers: int = 0) -> DataLoader:
    """A loader of whole batches, in the order of the clips."""
    return DataLoader(dataset, num_workers, batch_size=batch_size, collate_fn=_as_it_is)


def _as_it_is(batch: Any) -> Any:
    return batch  # the dataset gives whole batches
