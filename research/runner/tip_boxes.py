"""Boxes round the tips of instruments in single frames, and how many of them a mask hits."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedmed.errors import DataError

COVERED = 0.25  # share of a box's pixels that must be called for a hit
TOOL, BOX = 1, slice(3, 7)  # columns of an annotation of CholecT50: the tool, and left, top, width and height in 0…1
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class BoxedFrame:
    """A frame of a video with boxes.

    Attributes:
        video: its name.
        second: of the frame, as the files call it.
        path: of the picture.
        boxes: (n, 4), left, top, right and bottom as shares of width and height, 0…1.
    """

    video: str
    second: int
    path: Path
    boxes: NDArray[np.float64]


def boxed_frames(folder: Path, video: str) -> list[BoxedFrame]:
    """All frames of a video that have a box, in the order of time.

    Args:
        folder: with ``labels/<video>.json`` as CholecT50 has them, and ``videos/<video>/<second>.jpg``.
        video: name, such as ``VID68``.

    Raises:
        DataError: a file is missing or damaged; names it.
    """
    path = folder / "labels" / f"{video}.json"
    try:
        annotations: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["annotations"]
        of_second = {int(second): _boxes(rows) for second, rows in annotations.items()}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: the boxes cannot be read ({error}); set FEDMED_DATA to the folder above") from error
    pictures = {int(one.stem): one for one in (folder / "videos" / video).glob("*.jpg") if one.stem.isdigit()}
    if missing := sorted(second for second, boxes in of_second.items() if len(boxes) and second not in pictures):
        raise DataError(
            f"{folder / 'videos' / video}: has no picture of second {missing[0]}, which {path} has boxes of"
        )
    return [
        BoxedFrame(video, second, pictures[second], of_second[second])
        for second in sorted(of_second)
        if len(of_second[second])
    ]


def _boxes(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Each box once: an instrument that does two things at a time has two annotations."""
    single = dict.fromkeys((row[TOOL], *map(float, row[BOX])) for row in rows if min(row[BOX]) >= 0 and row[TOOL] >= 0)
    boxes = np.array([[x, y, min(x + w, 1.0), min(y + h, 1.0)] for _, x, y, w, h in single]).reshape(-1, 4)
    if not (boxes[:, :2] < boxes[:, 2:]).all():
        raise ValueError("a box has no width or no height")
    return boxes


def hits(mask: Mask, boxes: NDArray[np.float64], covered: float = COVERED) -> int:
    """Count the boxes (n, 4) that have at least the share ``covered`` of their pixels in a mask (H, W)."""
    return sum(bool(mask[rows, columns].mean() >= covered) for rows, columns in _places(mask.shape, boxes))


def _places(size: tuple[int, ...], boxes: NDArray[np.float64]) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of each box, one pixel at least."""
    height, width = size
    for left, top, right, bottom in boxes.tolist():
        row, column = min(int(top * height), height - 1), min(int(left * width), width - 1)
        yield slice(row, max(round(bottom * height), row + 1)), slice(column, max(round(right * width), column + 1))


def scattered(mask: Mask, generator: np.random.Generator) -> Mask:
    """As many pixels as a mask has, drawn anywhere in it."""
    chosen = np.zeros(mask.size, bool)
    chosen[generator.choice(mask.size, int(mask.sum()), replace=False)] = True
    return chosen.reshape(mask.shape)


def moved(mask: Mask, generator: np.random.Generator) -> Mask:
    """A mask at a place drawn at random; what leaves it on one side comes in on the other."""
    rows, columns = (int(generator.integers(size)) for size in mask.shape)
    return np.roll(mask, (rows, columns), axis=(0, 1))


def least_saturated(mask: Mask, image: NDArray[np.uint8]) -> Mask:
    """The pixels of an RGB image (H, W, 3) with the lowest saturation, as many as a mask has; of equals the first."""
    saturation = np.asarray(Image.fromarray(image).convert("HSV"))[..., 1].reshape(-1)
    chosen = np.zeros(mask.size, bool)
    chosen[np.argsort(saturation, kind="stable")[: int(mask.sum())]] = True
    return chosen.reshape(mask.shape)
