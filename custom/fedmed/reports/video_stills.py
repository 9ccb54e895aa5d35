"""Single frames of a video with the outlines of their masks, at wanted times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.frame_rules import Frame
from fedmed.data.video.source import Damage, ShownFrame, VideoSource
from fedmed.data.video.stored_video import StoredVideo
from fedmed.reports.ribbon import SAME
from fedmed.reports.slice_picture import contours

ANY = range(256)  # values of a mask


@dataclass(frozen=True)
class Still:
    """One frame as it is drawn.

    Attributes:
        second: at which it is asked for, from the video's first frame.
        image: (H, W, 3) uint8 RGB.
        outlines: (value of the mask, closed line (N, 2) of x and y in pixels); none where the frame has no mask.
    """

    second: float
    image: Frame
    outlines: Sequence[tuple[int, NDArray[np.float64]]]


def stills(
    source: VideoSource, path: Path, masks: Mapping[float, Path], times: Iterable[float], width: int
) -> Iterator[Still]:
    """The frames that are shown at increasing times, as far as the video goes.

    All of the video is decoded, so that damage is told wherever it lies.

    Args:
        source, path: the video.
        masks: second, from the first frame -> file.
        times: seconds from the first frame.
        width: of the images, in pixels; their height is even, and the first frame's.

    Raises:
        DataError: the video is damaged, or a mask has another size than its frame.
    """
    named, last, height = {round(1000 * second): file for second, file in masks.items()}, None, 0
    for second, begun, shown in _shown_at(source, path, times):
        if last is None or last[0] is not shown:
            tall, wide = upright(shown)
            height = height or max(2, 2 * round(width * tall / wide / 2))  # of all frames, whatever comes later
            early = int(1000 * begun)
            mask = named.get(early) or named.get(early + 1)
            last = shown, np.array(shown.scaled(height, width)), _outlines(shown, path, mask, (height, width))
        yield Still(second, *last[1:])


def _shown_at(source: VideoSource, path: Path, times: Iterable[float]) -> Iterator[tuple[float, float, ShownFrame]]:
    """(wanted time, time at which its frame begins, frame)."""
    wanted, start, shown = iter(times), 0.0, None
    due = next(wanted, None)
    for frame in source.frames(Damage(path)):
        start = frame.second if shown is None else start
        while shown is not None and due is not None and due < frame.second - start - SAME:
            yield due, shown.second - start, shown
            due = next(wanted, None)
        shown = frame
    while shown is not None and due is not None and due < max(shown.until, shown.second + SAME) - start:
        yield due, shown.second - start, shown
        due = next(wanted, None)


def upright(shown: ShownFrame) -> tuple[int, int]:
    """Rows and columns of a frame as it is to be seen."""
    tall, wide = shown.picture.height, shown.picture.width
    return (wide, tall) if round(shown.picture.rotation / 90) % 2 else (tall, wide)


def _outlines(
    shown: ShownFrame, path: Path, file: Path | None, size: tuple[int, int]
) -> list[tuple[int, NDArray[np.float64]]]:
    """The lines of a mask on an image of a size; none without a mask."""
    if file is None:
        return []
    facts = {"source_sizes": [upright(shown)], "picture_box": [0, 1, 0, 1], "height": size[0], "width": size[1]}
    mask = FrameMasks(file.parent, ANY).read(file, StoredVideo(path, Path(), facts))
    values = np.unique(mask[mask > 0]).tolist()
    return [(value, line) for value in values for line in contours(mask == value, (1, 1))]
