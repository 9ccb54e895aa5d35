"""The frames that inference takes one after the other, each with its history."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from .clips import earlier, with_history
from .errors import BundleInputError
from .frames import VIDEOS
from .picture_times import picture_times
from .videos import frames_at


class ClipDataset(IterableDataset[dict[str, Any]]):
    """Pictures, and frames of videos; one that cannot be read becomes a black image with the reason.

    Items have ``image`` (3 · frames, H, W); ``name``, the path below ``folder``; ``second`` in a video, or of a picture
    whose time is known, else not a number; ``shape``, height and width of the frame itself; and ``error``, why it could
    not be read, or "". Pictures of one folder whose times are known are one another's history; others have none.

    Args:
        paths: pictures and videos.
        transform: the preparation, which begins with :class:`instrument_nets.clips.LoadClipd`.
        folder: where they are, or the video itself.
        size: (H, W) that frames are scaled to.
        frames: of a clip.
        interval: seconds from one to the next.
        rate: frames a second of videos, each of which gets a mask.
        names_rate: see :func:`instrument_nets.picture_times.picture_times`, which also tells of a table of times.

    Raises:
        BundleInputError: as that function; two pictures of one folder at the same second are of two videos.
    """

    def __init__(
        self,
        paths: Sequence[str],
        transform: Any,
        folder: str | Path,
        size: Sequence[int],
        frames: int = 4,
        interval: float = 0.2,
        rate: float = 5.0,
        names_rate: float | None = None,
    ) -> None:
        self.paths, self.transform, self.size = list(paths), transform, (int(size[0]), int(size[1]))
        self.frames, self.interval, self.rate = frames, interval, rate
        self.folder = Path(folder).parent if Path(folder).is_file() else Path(folder)
        self.times = picture_times([path for path in self.paths if not is_video(path)], folder, names_rate)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers] if worker else self.paths:
            yield from self._of(path)

    def _of(self, path: str) -> Iterator[dict[str, Any]]:
        name, known = Path(path).relative_to(self.folder).as_posix(), self.times.get(path, math.nan)
        try:
            for second, source in self._clips(path, known):
                made = self.transform({"image": source})
                shape = torch.tensor(made["image_meta_dict"]["spatial_shape"][::-1])
                yield {"image": made["image"], "name": name, "second": second, "shape": shape, "error": ""}
        except (BundleInputError, RuntimeError) as error:  # the latter is MONAI's wrapping
            nothing = {"image": torch.zeros(3 * self.frames, *self.size), "shape": torch.tensor(self.size)}
            yield {**nothing, "name": name, "second": known, "error": str(_cause(error))}

    def _clips(self, path: str, second: float) -> Iterator[tuple[float, Any]]:
        if is_video(path):
            taken = frames_at(path, self.rate)
            yield from with_history(taken, self.rate, self.interval, self.frames, self.size)
        elif math.isnan(second) or self.frames == 1:
            yield second, path
        else:
            yield second, earlier(second, self._frames_of(path), self.interval, self.frames)

    def _frames_of(self, path: str) -> Mapping[float, str]:
        folder = Path(path).parent
        return {second: other for other, second in self.times.items() if Path(other).parent == folder}


def is_video(path: str) -> bool:
    """True where a file's name ends as a video's."""
    return Path(path).suffix.lower() in VIDEOS


def _cause(error: BaseException) -> BundleInputError:
    cause: BaseException = error
    while not isinstance(cause, BundleInputError):
        if cause.__cause__ is None:
            raise error
        cause = cause.__cause__
    return cause
