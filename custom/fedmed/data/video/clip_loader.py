"""Batches of clips from prepared videos."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import DataLoader
from torch import Tensor
from torch.utils.data import Dataset

from fedmed.data.video.clip_plan import ClipRule, Clips, every_frame, training_clips
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.stored_video import StoredVideo
from fedmed.data.video.video_store import Progress, VideoStore
from fedmed.errors import DataError


class PreparedVideos:
    """The videos of a list, prepared, with their labels by frame.

    Args:
        entries: each with ``video``, a file or a folder of frames, and perhaps ``labels``, an array with one line a
            frame: line k belongs to frame k of the store, at k / rate seconds, dropped or not. All entries have labels,
            or none.
        settings, cache_dir: see :class:`fedmed.data.video.video_store.VideoStore`. Videos that are not prepared yet are
            prepared now.
        progress: told each frame that is prepared.

    Raises:
        DataError: a video that cannot be used, labels of another length, or entries with and without labels.
    """

    def __init__(
        self,
        entries: Sequence[Mapping[str, Any]],
        settings: FrameSettings,
        cache_dir: Path | str,
        progress: Progress | None = None,
    ) -> None:
        store = VideoStore(cache_dir, settings)
        self.videos: list[StoredVideo] = [store.get(entry["video"], progress) for entry in entries]
        self.names = [str(entry["video"]) for entry in entries]
        labelled = [entry["video"] for entry in entries if entry.get("labels") is not None]
        if labelled and len(labelled) < len(entries):
            without = next(entry["video"] for entry in entries if entry.get("labels") is None)
            raise DataError(f"{without}: has no labels, but {labelled[0]} has; list them apart")
        self.labels = [torch.as_tensor(np.asarray(entry["labels"])) for entry in entries] if labelled else None
        for video, labels in zip(self.videos, self.labels or (), strict=False):
            if len(labels) != len(video):
                raise DataError(
                    f"{video.source}: has {len(labels)} labels for {len(video)} prepared frames; give one a frame"
                )


class ClipDataset(Dataset[dict[str, Tensor]]):
    """Clips as dictionaries of plain tensors; whole batches are read at once.

    Each has ``image`` (k, 3, H, W), ``video`` () int64: the place in the list, ``time`` (k,) float32 seconds from the
    first frame, ``part`` (k,) float32 share of the video that lies before each, and, of labelled videos, ``labels``
    (k, ...).

    Args:
        prepared: the videos.
        clips: which frames.
        as_float: images as float32 in [0, 1]; else as uint8, a quarter of the memory, which
            :class:`fedmed.data.augment.clip_views.ClipViews` takes too.
    """

    def __init__(self, prepared: PreparedVideos, clips: Clips, as_float: bool = False) -> None:
        self.prepared, self.clips, self.as_float = prepared, clips, as_float

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
        image_tensor = torch.from_numpy(image)
        times = np.stack([videos[number].times[rows] for number, rows in pairs])
        length = np.array([videos[number].facts["seconds"] for number, _ in pairs])
        batch = {
            "image": unit_float(image_tensor) if self.as_float else image_tensor,
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
    as_float: bool = False,
) -> DataLoader | None:
    """Return a loader of exactly ``steps`` full batches; None without videos.

    Clips come epoch after epoch, each in an order of its own. The same seed gives the same batches in every process
    and with any number of workers, so a site that resumes a round draws what it had drawn.

    Args:
        prepared: the videos.
        rule: how they are cut.
        batch_size, steps: clips in a batch, and batches.
        seed: of clips and order.
        num_workers: processes that load; reading from the store seldom needs any.
        as_float: see :class:`ClipDataset`.

    Raises:
        DataError: no video is long enough for a clip, or less than one clip a batch.
    """
    if batch_size < 1 or steps < 1:
        raise DataError(f"{steps} batches of {batch_size} clips: use at least 1 of each")
    if not prepared.videos:
        return None
    clips = training_clips(prepared.videos, rule, seed, batch_size * steps)
    return batches_of(ClipDataset(prepared, clips, as_float), batch_size, num_workers)


def frame_loader(
    prepared: PreparedVideos, rule: ClipRule, batch_size: int, num_workers: int = 0, as_float: bool = False
) -> DataLoader:
    """Return a loader of every kept frame with its history, in the order of videos and time: for predictions."""
    return batches_of(ClipDataset(prepared, every_frame(prepared.videos, rule), as_float), batch_size, num_workers)


def batches_of(dataset: ClipDataset, batch_size: int, num_workers: int = 0) -> DataLoader:
    """A loader of whole batches, in the order of the clips."""
    return DataLoader(dataset, num_workers, batch_size=batch_size, collate_fn=_as_it_is)


def _as_it_is(batch: Any) -> Any:
    return batch  # the dataset gives whole batches
