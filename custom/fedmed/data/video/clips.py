"""Which frames make a clip: pure functions of the length of a video and of drawn numbers.

Frames are numbered 0..length−1. ``stride``, ``random_order`` and ``partition`` are the samplings of Dwibedi et al.
(CVPR 2019) and of Kassem et al. (IEEE TMI 2023, Table III); ``history`` is that of Fang et al. (2025, Section 2).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmed.errors import DataError

Rows = NDArray[np.int64]


def stride(length: int, size: int, step: int, rng: np.random.Generator) -> Rows:
    """(size,) every ``step``-th frame from a drawn one; of a short video from the first, and its last is repeated."""
    _check(length, size, step)
    first = rng.integers(max(1, length - (size - 1) * step))
    rows: Rows = np.minimum(first + step * np.arange(size), length - 1)
    return rows


def random_order(length: int, size: int, rng: np.random.Generator, first: int = 1) -> Rows:
    """(size,) distinct frames drawn uniformly from ``first``..length−1, in the order of time.

    Where there are fewer, all of them, and the last is repeated. The reference leaves out frame 0.
    """
    _check(length, size)
    first = min(first, length - 1)
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
