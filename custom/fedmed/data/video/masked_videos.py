"""A site's videos with masks of some of their frames."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from monai.data import DataLoader
from torch import Tensor

from fedmed.data.datalist import load_datalist
from fedmed.data.entry_forms import Video
from fedmed.data.video.checked_masks import check_masks
from fedmed.data.video.clip_loader import ClipDataset, PreparedVideos, batches_of
from fedmed.data.video.clip_plan import ClipRule, Clips, joined
from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.mask_rates import better_rate
from fedmed.data.video.stored_video import StoredVideo
from fedmed.errors import DataError
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.data")

_TOLD: set[tuple[Path, float | None]] = set()  # of what was left out; videos are opened anew in each round


class MaskedVideos(PreparedVideos):
    """The videos of a list, prepared, with their masks.

    Args:
        data_root, datalist, key: see :func:`fedmed.data.datalist.load_datalist`.
        classes: names of what 1, 2, … stand for in a mask.
        settings, cache_dir: see :class:`fedmed.data.video.video_store.VideoStore`.

    Attributes:
        masks: of each video.
        files: of each video, a frame of the store that is kept -> its mask.

    Raises:
        DataError: the list, a video, a mask or a folder of masks cannot be used, or no mask is of a frame that is used.
    """

    def __init__(
        self,
        data_root: Path | str,
        datalist: Path | str,
        key: str,
        classes: Sequence[str],
        settings: FrameSettings,
        cache_dir: Path | str,
    ) -> None:
        cases = load_datalist(data_root, datalist, key, form=Video(labels=False, masks=True))
        super().__init__([{"video": case["video"]} for case in cases], settings, cache_dir)
        self.masks = [FrameMasks(Path(case["masks"]), range(len(classes) + 1)) for case in cases]
        pairs = zip(self.masks, self.videos, strict=True)
        self.files = [_used(masks, video, settings.rate) for masks, video in pairs]
        self.check(f"{datalist}, list '{key}'", classes)

    def check(self, source: str, classes: Sequence[str]) -> None:
        """Look at all videos and masks together; the source is for errors."""


def _used(masks: FrameMasks, video: StoredVideo, rate: float | None) -> dict[int, Path]:
    """Frame of the store that is kept -> its mask, looked at; what is left out is told."""
    found = masks.of(video)
    files = {row: path for row, path in found.items() if video.kept[row]}
    if not files:
        hint = f"; {better_rate(masks, video, rate)}" if not found else ""
        raise DataError(
            f"{masks.folder}: no mask is of a frame of {video.source} that is used{hint}; use another rate, or the "
            "masks of this video"
        )
    if (masks.folder, rate) not in _TOLD and (number := len(masks.files())) > len(found):
        _TOLD.add((masks.folder, rate))
        when = "" if rate is None else f" at {rate:g} a second"
        text = f"{number - len(found)} of {number} masks of {video.source.name} are of no frame{when} and are left out"
        log.warning("%s; %s", text, better_rate(masks, video, rate))
    check_masks(masks, files.values(), video)
    return files


def masked_frames(prepared: MaskedVideos, rule: ClipRule) -> Clips:
    """A clip for each frame that has a mask, with its history, in the order of videos and time."""
    rows = [np.array(sorted(files), np.int64) for files in prepared.files]
    return joined([rule.with_history(v, own) for v, own in zip(prepared.videos, rows, strict=True)], rule.size)


class MaskedClips(ClipDataset):
    """As :class:`fedmed.data.video.clip_loader.ClipDataset`; ``labels`` is (1, H, W) int64, the mask of the last frame.

    A mask is read from its file each time.
    """

    prepared: MaskedVideos

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        batch = super().__getitems__(indices)
        chosen = self.clips.take(np.asarray(indices))
        masks = [self._mask(v, row) for v, row in zip(chosen.videos.tolist(), chosen.rows[:, -1].tolist(), strict=True)]
        return batch | {"labels": torch.from_numpy(np.stack(masks)[:, None].astype(np.int64))}

    def _mask(self, video: int, row: int) -> np.ndarray:
        return self.prepared.masks[video].read(self.prepared.files[video][row], self.prepared.videos[video])


def masked_frame_loader(prepared: MaskedVideos, rule: ClipRule, batch_size: int, num_workers: int = 0) -> DataLoader:
    """Return a loader of every frame that has a mask, in the order of videos and time: for predictions."""
    return batches_of(MaskedClips(prepared, masked_frames(prepared, rule)), batch_size, num_workers)


def masked_clip_loader(
    prepared: MaskedVideos, rule: ClipRule, batch_size: int, steps: int, seed: int, num_workers: int = 0
) -> DataLoader:
    """Return a loader of exactly ``steps`` full batches of frames that have masks, each once an epoch.

    The same seed gives the same batches in every process and with any number of workers.

    Raises:
        DataError: less than one frame a batch, or one batch.
    """
    if batch_size < 1 or steps < 1:
        raise DataError(f"{steps} batches of {batch_size} frames: use at least 1 of each")
    clips, count = masked_frames(prepared, rule), batch_size * steps
    rngs = (np.random.default_rng(derive_seed(seed, "order of masks", n)) for n in range(-(-count // len(clips))))
    order = np.concatenate([rng.permutation(len(clips)) for rng in rngs])[:count]
    return batches_of(MaskedClips(prepared, clips.take(order)), batch_size, num_workers)
