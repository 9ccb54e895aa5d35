"""Single frames of a video with the outlines of their masks, at wanted times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.frame_rules import Frame
from fedmed.data.video.orientation import orientation
from fedmed.data.video.source import Damage, ShownFrame, VideoSource
from fedmed.data.video.stored_video import StoredVideo
from fedmed.reports.palette import MARKS
from fedmed.reports.ribbon import SAME
from fedmed.reports.slice_picture import contours

ANY = range(256)  # values of a mask
COVER = 0.45  # opacity of a mask that a model called


@dataclass(frozen=True)
class Still:
    """One frame as it is drawn.

    Attributes:
        second: at which it is asked for, from the video's first frame.
        image: (H, W, 3) uint8 RGB.
        outlines: (value of the mask, closed line (N, 2) of x and y in pixels); none where the frame has no mask.
        covered: values of the mask that a model called, whose colours lie over the image.
    """

    second: float
    image: Frame
    outlines: Sequence[tuple[int, NDArray[np.float64]]]
    covered: Sequence[int] = ()


def outline_colour(value: int) -> str:
    """Of a mask's value, above 0."""
    return MARKS[(value - 1) % len(MARKS)]


def stills(
    source: VideoSource,
    path: Path,
    masks: Mapping[float, Path],
    times: Iterable[float],
    width: int,
    called: Mapping[float, Path] = MappingProxyType({}),
) -> Iterator[Still]:
    """The frames that are shown at increasing times, as far as the video goes.

    All of the video is decoded, so that damage is told wherever it lies.

    Args:
        source, path: the video.
        masks: second, from the first frame -> file.
        times: seconds from the first frame.
        width: of the images, in pixels; their height is even, and the first frame's.
        called: second, from the first frame -> file of the masks that a model called.

    Raises:
        DataError: the video is damaged, or a mask has another size than its frame.
    """
    true, found = ({round(1000 * second): file for second, file in own.items()} for own in (masks, called))
    last, height = None, 0
    for second, begun, shown in _shown_at(source, path, times):
        if last is None or last[0] is not shown:
            tall, wide = upright(shown)
            height = height or max(2, 2 * round(width * tall / wide / 2))  # of all frames, whatever comes later
            mask, other = (_mask(shown, path, begun, named, (height, width)) for named in (true, found))
            image, values = _covered(np.array(shown.scaled(height, width)), other)
            last = shown, image, _outlines(mask), values
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
    return (wide, tall) if orientation(shown.picture).swapped else (tall, wide)


def _mask(
    shown: ShownFrame, path: Path, begun: float, named: Mapping[int, Path], size: tuple[int, int]
) -> NDArray[np.uint8] | None:
    """The mask of a frame that begins at a second, on an image of a size; None where there is none."""
    early = int(1000 * begun)
    file = named.get(early) or named.get(early + 1)
    if file is None:
        return None
    facts = {"source_sizes": [upright(shown)], "picture_box": [0, 1, 0, 1], "height": size[0], "width": size[1]}
    return FrameMasks(file.parent, ANY).read(file, StoredVideo(path, Path(), facts))


def _outlines(mask: NDArray[np.uint8] | None) -> list[tuple[int, NDArray[np.float64]]]:
    """The lines of a mask; none without one."""
    values = [] if mask is None else np.unique(mask[mask > 0]).tolist()
    return [(value, line) for value in values for line in contours(mask == value, (1, 1))]


def _covered(image: Frame, mask: NDArray[np.uint8] | None) -> tuple[Frame, list[int]]:
    """An image under the colours of a mask, and the values of the mask."""
    values = [] if mask is None else np.unique(mask[mask > 0]).tolist()
    for value in values:
        own = mask == value
        image[own] = (1 - COVER) * image[own] + COVER * 255 * np.array(to_rgb(outline_colour(value)))
    return image, values
