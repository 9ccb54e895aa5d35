"""Datasets of the videos of a datalist: with tables of labels, with masks, or without either."""

import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import DataLoader
from numpy.typing import NDArray
from torch import Tensor

from fedmed.data.classes import load_images
from fedmed.data.datalist import HELD_OUT, Video, list_entries, load_datalist
from fedmed.data.video.clips import ClipDataset, ClipRule, Clips, PreparedVideos, batches_of, joined
from fedmed.data.video.frame_masks import FrameMasks, better_rate, picture
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.label_table import TimedLabels, read_label_table
from fedmed.data.video.stored_video import StoredVideo
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError
from fedmed.files import write_atomically
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.data")
_WARNED: set[tuple[Path, float | None]] = set()  # of what was left out; videos are opened anew in each round
SUFFIX = ".masks"


def load_unlabelled_videos(
    data_root: Path | str,
    datalist: Path | str,
    settings: FrameSettings,
    cache_dir: Path | str,
    transductive: bool = False,
) -> PreparedVideos:
    """Return the videos of ``unlabeled`` and ``training``, prepared, each once and without labels.

    Args:
        data_root, datalist, transductive: see :func:`fedmed.data.classes.load_images`.
        settings, cache_dir: see :class:`fedmed.data.video.video_store.VideoStore`.

    Raises:
        DataError: no such video, or one that cannot be used.
    """
    videos = load_images(data_root, datalist, form=Video(), transductive=transductive)
    return PreparedVideos(videos, settings, cache_dir)


def load_labelled_videos(
    data_root: Path | str,
    datalist: Path | str,
    key: str,
    settings: FrameSettings,
    cache_dir: Path | str,
    tools: Sequence[str] = (),
    phases: Sequence[str] = (),
) -> PreparedVideos:
    """Return the videos of a list, prepared, with labels: of tools (T, J) uint8, 0 or 1, of phases (T,) int64.

    All tables are read before the first video is prepared.

    Args:
        data_root, datalist, key: see :func:`fedmed.data.datalist.load_datalist`.
        settings, cache_dir: see :class:`fedmed.data.video.video_store.VideoStore`.
        tools: columns of the tables, all that there are, in the order of the labels; or
        phases: what the tables' column ``phase`` may hold; a label is a place in it.

    Raises:
        DataError: the list, a table or a video cannot be used, a table does not fit its video, or all of ``training``
            is of one phase.
    """
    if bool(tools) == bool(phases):
        raise DataError("labels of videos: name either 'tools' or 'phases'")
    cases = load_datalist(data_root, datalist, key, form=Video())
    tables = [read_label_table(case["labels"], phases=phases, tools=tools) for case in cases]
    store, of = VideoStore(cache_dir, settings), TimedLabels.tools_of if tools else TimedLabels.phases_of
    labels = [of(table, store.get(case["video"])) for case, table in zip(cases, tables, strict=True)]
    if key == "training":
        mention_scored(Path(data_root), Path(datalist), cases)
    if phases and key == "training":
        require_two_phases(Path(datalist), labels, phases)
    entries = [{"video": case["video"], "labels": of_video} for case, of_video in zip(cases, labels, strict=True)]
    return PreparedVideos(entries, settings, cache_dir)


def mention_scored(root: Path, datalist: Path, cases: Sequence[Mapping[str, Any]]) -> None:
    """Warn of videos that are trained on and scored: how well they are called says nothing of others.

    It is no error, because four operations may be all there is. ``cases`` are those of ``training``.
    """
    entries = [entry for key in HELD_OUT for entry in list_entries(datalist, key) if isinstance(entry, Mapping)]
    scored = {str(Path(root, str(entry.get("video"))).resolve()) for entry in entries}
    both = [case["video"] for case in cases if str(Path(case["video"]).resolve()) in scored]
    if both:
        shared = f"{len(both)} of {len(cases)} training videos are also listed for validation or testing"
        log.warning("%s: %s, the first %s; scores there say nothing of others", datalist, shared, Path(both[0]).name)


def require_two_phases(datalist: Path, labels: Sequence[NDArray[Any]], phases: Sequence[str]) -> None:
    """Refuse training frames that are all of one phase: a model learns from them to call nothing else."""
    present = np.unique(np.concatenate(labels))
    if len(present) == 1:
        text = (
            f"{datalist}: every frame of 'training' is of the phase '{phases[present[0]]}', so nothing else is learnt"
        )
        raise DataError(f"{text}; list videos with other phases too, or let the site take part without labels")


def shown_frames(prepared: PreparedVideos) -> list[int]:
    """(J,) how many of the kept frames of all videos show each label."""
    labelled = zip(prepared.videos, prepared.labels or (), strict=False)
    counts = [labels[video.kept].sum(dim=0) for video, labels in labelled]
    return [int(count) for count in torch.stack(counts).sum(dim=0)] if counts else []


def frames_of_phases(prepared: PreparedVideos, phases: int) -> list[int]:
    """(phases,) how many of the kept frames of all videos are of each phase."""
    labelled = zip(prepared.videos, prepared.labels or (), strict=False)
    counts = [torch.bincount(labels[video.kept], minlength=phases) for video, labels in labelled]
    return [int(count) for count in torch.stack(counts).sum(dim=0)] if counts else [0] * phases


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
    of_frames = masks.of(video)
    files = {row: path for row, path in of_frames.items() if video.kept[row]}
    if not files:
        hint = f"; {better_rate(masks, video, rate)}" if not of_frames else ""
        text = f"{masks.folder}: no mask is of a frame of {video.source} that is used{hint}"
        raise DataError(f"{text}; use another rate, or the masks of this video")
    if (masks.folder, rate) not in _WARNED and (number := len(masks.files())) > len(of_frames):
        _WARNED.add((masks.folder, rate))
        when = "" if rate is None else f" at {rate:g} a second"
        text = (
            f"{number - len(of_frames)} of {number} masks of {video.source.name} are of no frame{when} and are left out"
        )
        log.warning("%s; %s", text, better_rate(masks, video, rate))
    check_masks(masks, files.values(), video)
    return files


def masked_frames(prepared: MaskedVideos, rule: ClipRule) -> Clips:
    """A clip for each frame that has a mask, with its history, in the order of videos and time."""
    rows = [np.array(sorted(files), np.int64) for files in prepared.files]
    return joined([rule.with_history(v, frames) for v, frames in zip(prepared.videos, rows, strict=True)], rule.size)


class MaskedClips(ClipDataset):
    """As :class:`fedmed.data.video.clips.ClipDataset`; ``labels`` is (1, H, W) int64, the mask of the last frame.

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


def check_masks(masks: FrameMasks, files: Collection[Path], video: StoredVideo) -> None:
    """Read masks of a prepared video, and note beside its frames that they are right, so that it happens once.

    The note holds for these files, their sizes and times of change: another mask is read with all the others.

    Raises:
        DataError: see :meth:`fedmed.data.video.frame_masks.FrameMasks.check`.
    """
    note = video.path.with_name(f"{_digest(masks, files, video)}{SUFFIX}")
    if note.is_file():
        return
    for path in files:
        masks.check(path, video)
    try:
        write_atomically(note, lambda stream: stream.write(b""))
    except OSError as error:
        log.warning("%s cannot be written (%s); the masks are looked at each time", note, error)


def _digest(masks: FrameMasks, files: Collection[Path], video: StoredVideo) -> str:
    digest = hashlib.sha256(f"{sorted(masks.values)} {video.facts['source_sizes']}".encode())
    for path in sorted(files):
        try:
            facts = path.stat()
        except OSError as error:
            raise DataError(f"{path}: the mask cannot be read ({error.strerror}); restore it") from error
        known = f"\0{path.absolute()}\0{facts.st_size} {facts.st_mtime_ns}"
        digest.update(known.encode(errors="surrogateescape"))
    return digest.hexdigest()


class SyntheticImages(MaskedVideos):
    """The folders of single pictures of a list, prepared, with their masks; every picture is taken once.

    ``masked_clip_loader(images, ClipRule("history", k), …)`` gives batches with ``image`` (B, k, 3, H, W), uint8, a
    picture k times, and ``labels`` (B, 1, H, W), int64.

    The arguments are those of :class:`fedmed.data.video.listed_videos.MaskedVideos`; the rate does not matter.

    Raises:
        DataError: as :class:`MaskedVideos`; an entry is a video; or no mask shows an instrument.
    """

    def check(self, source: str, classes: Sequence[str]) -> None:
        for video in self.videos:
            if not video.facts.get("single"):
                remedy = "list folders with pictures.csv, as fedmed prepare video --layout pictures makes them"
                raise DataError(f"{video.source}: is a video, and single pictures are needed; {remedy}")
        if not any(picture(file).any() for files in self.files for file in files.values()):
            count = sum(map(len, self.files))
            text = f"{source}: none of its {count} masks shows an instrument ({', '.join(classes)})"
            raise DataError(f"{text}; use other pictures, or say which values are instruments when they are prepared")
