"""A site's videos with the tools or the phase of each frame."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedmed.data.datalist import HELD_OUT, Video, list_entries, load_datalist
from fedmed.data.video.clip_loader import PreparedVideos
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.label_table import TimedLabels, read_label_table
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError

log = logging.getLogger("fedmed.data")


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
    entries = [{"video": case["video"], "labels": own} for case, own in zip(cases, labels, strict=True)]
    return PreparedVideos(entries, settings, cache_dir)


def mention_scored(root: Path, datalist: Path, cases: Sequence[Mapping[str, Any]]) -> None:
    """Warn of videos that are trained on and scored: how well they are called says nothing of others.

    It is no error, because four operations may be all there is.

    Args:
        root, datalist: the site's.
        cases: of ``training``, with absolute paths.
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
        raise DataError(
            f"{datalist}: every frame of 'training' is of the phase '{phases[present[0]]}', so a model would learn to "
            "call nothing else; list videos with other phases too, or let the site take part without labels"
        )


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
