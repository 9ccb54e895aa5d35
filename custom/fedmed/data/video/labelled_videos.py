"""A site's videos with the tools or the phase of each frame."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from fedmed.data.datalist import load_datalist
from fedmed.data.entry_forms import Video
from fedmed.data.video.clip_loader import PreparedVideos
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.label_table import LabelTable, read_label_table
from fedmed.data.video.stored_video import StoredVideo
from fedmed.data.video.video_store import VideoStore


def load_tool_videos(
    data_root: Path | str,
    datalist: Path | str,
    key: str,
    tools: Sequence[str],
    settings: FrameSettings,
    cache_dir: Path | str,
) -> PreparedVideos:
    """Return the videos of a list, prepared, with labels (T, J) uint8, 0 or 1, in the order of ``tools``.

    All tables are read before the first video is prepared.

    Args:
        data_root, datalist, key: see :func:`fedmed.data.datalist.load_datalist`.
        tools: columns of the tables, all that there are.
        settings, cache_dir: see :class:`fedmed.data.video.video_store.VideoStore`.

    Raises:
        DataError: the list, a table or a video cannot be used, or a table does not fit its video.
    """
    cases = load_datalist(data_root, datalist, key, form=Video())
    tables = [read_label_table(case["labels"], tools=tools) for case in cases]
    return _prepared(cases, tables, LabelTable.tools_of, settings, cache_dir)


def load_phase_videos(
    data_root: Path | str,
    datalist: Path | str,
    key: str,
    phases: Sequence[str],
    settings: FrameSettings,
    cache_dir: Path | str,
) -> PreparedVideos:
    """The same with labels (T,) int64, places in ``phases``, the names that the tables' column ``phase`` may have."""
    cases = load_datalist(data_root, datalist, key, form=Video())
    tables = [read_label_table(case["labels"], phases=phases) for case in cases]
    return _prepared(cases, tables, LabelTable.phases_of, settings, cache_dir)


def _prepared(
    cases: Sequence[dict[str, str]],
    tables: Sequence[LabelTable],
    labels_of: Callable[[LabelTable, StoredVideo], NDArray[Any]],
    settings: FrameSettings,
    cache_dir: Path | str,
) -> PreparedVideos:
    store = VideoStore(cache_dir, settings)
    labels = [labels_of(table, store.get(case["video"])) for case, table in zip(cases, tables, strict=True)]
    entries = [{"video": case["video"], "labels": own} for case, own in zip(cases, labels, strict=True)]
    return PreparedVideos(entries, settings, cache_dir)


def shown_frames(prepared: PreparedVideos) -> list[int]:
    """(J,) how many of the kept frames of all videos show each label."""
    labelled = zip(prepared.videos, prepared.labels or (), strict=False)
    counts = [labels[video.kept].sum(dim=0) for video, labels in labelled]
    return [int(count) for count in torch.stack(counts).sum(dim=0)] if counts else []
