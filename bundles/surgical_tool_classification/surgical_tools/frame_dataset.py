"""The frames that inference takes one after the other."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from .errors import BundleInputError
from .frames import VIDEOS
from .picture_times import picture_times
from .videos import frames_at


class FrameDataset(IterableDataset[dict[str, Any]]):
    """Pictures, and frames of videos; one that cannot be read becomes a black frame with the reason.

    Items have ``image`` (3, H, W); ``name``, the path below ``folder``; ``second`` in a video, or of a picture whose
    time is known, else not a number; and ``error``, why it could not be read, or "".

    Args:
        paths: pictures and videos.
        transform: the preparation of a frame.
        folder: where they are, or the video itself.
        size: (H, W) of the black frame.
        rate: frames a second of videos.
        names_rate: see :func:`picture_times`, which also tells of a table of times.
    """

    def __init__(
        self,
        paths: Sequence[str],
        transform: Any,
        folder: str | Path,
        size: Sequence[int],
        rate: float = 1.0,
        names_rate: float | None = None,
    ) -> None:
        self.paths, self.transform, self.size, self.rate = list(paths), transform, size, rate
        self.folder = Path(folder).parent if Path(folder).is_file() else Path(folder)
        pictures = [path for path in self.paths if not _is_video(Path(path))]
        self.times = picture_times(pictures, folder, names_rate)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers] if worker else self.paths:
            yield from self._of(Path(path))

    def _of(self, path: Path) -> Iterator[dict[str, Any]]:
        name, known = path.relative_to(self.folder).as_posix(), self.times.get(str(path), math.nan)
        try:
            taken = frames_at(path, self.rate) if _is_video(path) else [(known, path)]
            for second, source in taken:
                image = self.transform({"image": source})["image"]
                yield {"image": image, "name": name, "second": second, "error": ""}
        except (BundleInputError, RuntimeError) as error:  # the latter is MONAI's wrapping
            cause: BaseException = error
            while not isinstance(cause, BundleInputError):
                if cause.__cause__ is None:
                    raise
                cause = cause.__cause__
            yield {"image": torch.zeros(3, *self.size), "name": name, "second": known, "error": str(cause)}


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in VIDEOS
