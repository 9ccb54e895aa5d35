"""Masks of a video's frames, one file a frame, and how often a second they come."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedmed.data.image_size import opened_picture
from fedmed.data.video.file_source import open_video
from fedmed.data.video.frame_settings import NEARLY, frame_grid
from fedmed.data.video.stored_video import StoredVideo
from fedmed.errors import DataError, first_line

ROUNDING = 0.001  # seconds: names hold whole milliseconds
USUAL = (1.0, 2.0, 5.0, 10.0, 15.0, 25.0, 30.0, 50.0, 60.0)  # frames a second that are proposed


@dataclass(frozen=True)
class FrameMasks:
    """A folder of masks: ``00012000.png`` is that of the frame which is shown from 12 000 ms on.

    Times count as those of a table, see :class:`fedmed.data.video.label_table.TimedLabels`.
    """

    folder: Path
    values: Collection[int]  # that a mask may have, such as ``range(4)``

    def files(self) -> list[tuple[float, Path]]:
        """(second, file) of every mask, in the order of time.

        Raises:
            DataError: the folder cannot be read, holds no masks, or a name does not tell a time.
        """
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix.lower() == ".png")
        except OSError as error:
            raise DataError(f"{self.folder}: the masks cannot be read ({error.strerror}); restore them") from error
        if not paths:
            raise DataError(f"{self.folder}: holds no masks; put PNG files named by milliseconds there: 00012000.png")
        for path in paths:
            if not (path.stem.isascii() and path.stem.isdigit()):
                raise DataError(f"{path}: the name is not a time in milliseconds; call it like 00012000.png")
        return sorted((int(path.stem) / 1000, path) for path in paths)

    def of(self, video: StoredVideo) -> dict[int, Path]:
        """Frame of the store -> its mask, for the frames that have one.

        Frame k has the mask of the frame of the video that it shows, so masks of frames between two of the store are
        not among them.

        Raises:
            DataError: as :meth:`files`; or a mask is later than the video ends.
        """
        end, times = video.start + float(video.facts["seconds"]), video.times + video.start
        shown = _shown(video) if video.facts["rate"] else 0.0  # a frame of the store began less than that before
        masks: dict[int, Path] = {}
        for second, path in self.files():
            if second > end + ROUNDING:
                raise DataError(f"{path}: is of {second:g} s, but {video.source} ends at {end:g} s; use its own masks")
            frame = int(np.searchsorted(times, second - ROUNDING))
            if frame < len(times) and times[frame] - second < max(shown - ROUNDING, ROUNDING):
                masks[frame] = path
        return masks

    def read(self, path: Path, video: StoredVideo) -> NDArray[np.uint8]:
        """(H, W) a mask on the frames of the store: borders cut off and scaled as they are, by the nearest pixel.

        Raises:
            DataError: as :meth:`check`.
        """
        mask = self.check(path, video)
        height, width = mask.shape
        top, bottom, left, right = video.facts["picture_box"]
        rows = _nearest(top * height, bottom * height, video.facts["height"])
        return mask[np.ix_(rows, _nearest(left * width, right * width, video.facts["width"]))].astype(np.uint8)

    def check(self, path: Path, video: StoredVideo) -> NDArray[Any]:
        """A mask as it is.

        Raises:
            DataError: not a picture of one channel, of another size than the video, or with other values.
        """
        mask = picture(path)
        sizes = [tuple(size) for size in video.facts["source_sizes"]]
        if mask.ndim != 2 or mask.shape not in sizes:
            expected = " or ".join(map(str, sizes))
            text = f"{path}: the mask has shape {mask.shape}, and its video {video.source} {expected}"
            raise DataError(f"{text}; draw it on the frame itself, in one channel")
        self._check_values(path, mask)
        return mask

    def check_values(self) -> None:
        """Read all masks without their video; DataError as :meth:`files`, or for a damaged one or another value."""
        for _, path in self.files():
            self._check_values(path, picture(path))

    def _check_values(self, path: Path, mask: NDArray[Any]) -> None:
        if others := sorted(set(np.unique(mask).tolist()) - set(self.values)):
            known = f"0 … {max(self.values)}" if len(self.values) > 9 else ", ".join(map(str, self.values))
            raise DataError(f"{path}: the mask has the value {others[0]}; use {known}")


def picture(file: Path | IO[bytes]) -> NDArray[Any]:
    """The values of a PNG as they are stored; DataError where it cannot be read."""
    try:
        with opened_picture(file) as image:
            return np.array(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{file}: the mask cannot be read ({first_line(error)}); restore it") from error


def _shown(video: StoredVideo) -> float:
    """Seconds for which the video shows one frame."""
    source = open_video(video.source)
    rate = source.steady_rate()
    return 1 / rate if rate else source.seconds() / max(1, source.count())


def _nearest(low: float, high: float, count: int) -> NDArray[np.int64]:
    """The pixels from ``low`` to ``high`` that lie nearest to the centres of ``count`` equal parts."""
    return (low + (np.arange(count) + 0.5) * (high - low) / count).astype(np.int64)


def used_masks(masks: FrameMasks, video: StoredVideo, rate: float | None) -> int:
    """Count the masks of frames that are taken at ``rate``, whatever the rate at which the video was gone through.

    Of single pictures, and with None, the rate is that of ``video``. Errors are those of :meth:`FrameMasks.of`.
    """
    return len(masks.of(video if rate is None or video.facts.get("single") else _at(video, rate)))


def better_rate(masks: FrameMasks, video: StoredVideo, rate: float | None = None) -> str:
    """Rate at which all masks are used, as half a sentence: the next above ``rate``, or else below.

    Usual rates that divide the video's own come into question, and that itself. Errors are those of :func:`used_masks`.
    """
    number, video_rate = len(masks.files()), open_video(video.source).steady_rate()
    rates = USUAL if video_rate is None else (*(rate for rate in USUAL if _divides(rate, video_rate)), video_rate)
    nearest = sorted(rates, key=lambda one: (one < (rate or 0), abs(one - (rate or 0))))
    fitting = next((one for one in nearest if used_masks(masks, video, one) == number), None)
    return f"at {'no usual rate' if fitting is None else f'{fitting:.4g} a second'} all of them are used"


def _divides(rate: float, video_rate: float) -> bool:
    steps = video_rate / rate
    return steps > 1 and abs(steps - round(steps)) <= NEARLY * steps


def _at(video: StoredVideo, rate: float) -> StoredVideo:
    """The same video as if its frames had been taken at another rate."""
    grid = frame_grid(open_video(video.source).steady_rate(), rate)
    facts = {"rate": grid.rate, "frames": grid.frames(float(video.facts["seconds"]))}
    return replace(video, facts={**video.facts, **facts})
