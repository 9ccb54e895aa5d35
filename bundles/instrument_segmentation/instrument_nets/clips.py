"""Frames with their history, as the network takes them: oldest first, as channels of one image."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform
from PIL import Image

from .errors import BundleInputError
from .frames import read_frame


class LoadClipd(MapTransform):
    """Make an image (3 · frames, H, W), float32 in [0, 1], of a path, a picture, or pictures of a clip, oldest first.

    A single picture, and the pictures of a clip that is too short, are preceded by copies of the last: that is how the
    network was trained where a video begins. ``<key>_meta_dict`` has ``spatial_shape``, width and height of the last
    picture, as MONAI's reader of pictures says them.

    Args:
        keys: entries to read.
        size: (H, W) in pixels.
        frames: of a clip.

    Raises:
        BundleInputError: a size below 32 pixels, or less than one frame; when called, a file that is not a picture.
    """

    width_first = False  # of the image that it makes, for MONAI Label

    def __init__(
        self, keys: KeysCollection, size: Sequence[int], frames: int = 4, allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        if len(size) != 2 or min(size) < 32:
            raise BundleInputError(f"image_size is {list(size)}; give height and width of at least 32 pixels")
        if frames < 1:
            raise BundleInputError(f"frames is {frames}; give the frames of a clip, at least 1")
        self.size, self.frames = (int(size[0]), int(size[1])), frames

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            given = case[key] if isinstance(case[key], list | tuple) else [case[key]]
            read = [one if isinstance(one, ReadFrame) else ReadFrame(one, self.size) for one in given[-self.frames :]]
            case[key] = stacked([one.image for one in read], self.frames)
            case[f"{key}_meta_dict"] = {"spatial_shape": read[-1].shape[::-1]}
        return case


class ReadFrame:
    """A picture that was read once, for the clips of several frames.

    Attributes:
        image: (3, H, W) float32 in [0, 1].
        shape: height and width of the picture itself.
    """

    def __init__(self, source: Any, size: tuple[int, int]) -> None:
        self.image = read_frame(source, size)
        self.shape = picture_shape(source)


def stacked(images: Sequence[torch.Tensor], frames: int) -> torch.Tensor:
    """(3 · frames, H, W) of at most ``frames`` images (3, H, W), oldest first; the last stands for those before."""
    return torch.cat([images[-1]] * (frames - len(images)) + list(images))


def picture_shape(source: Any) -> tuple[int, int]:
    """Height and width of a picture, or of its file."""
    if isinstance(source, Image.Image):
        return source.height, source.width
    with Image.open(source) as file:
        return file.height, file.width


def with_history(
    frames: Iterator[tuple[float, Image.Image]], rate: float, interval: float, count: int, size: tuple[int, int]
) -> Iterator[tuple[float, list[ReadFrame]]]:
    """Yield second and clip of each frame of a video; no more frames are held than a clip reaches back.

    Args:
        frames: second and picture, ``rate`` of them a second.
        interval: seconds from one frame of a clip to the next.
        count: frames of a clip.
        size: (H, W) in pixels that frames are scaled to.

    Raises:
        BundleInputError: an interval below one frame.
    """
    step = interval_in_frames(interval, rate) if count > 1 else 1
    held: list[ReadFrame] = []
    for second, picture in frames:
        held = [*held[-step * (count - 1) :], ReadFrame(picture, size)] if count > 1 else [ReadFrame(picture, size)]
        last = len(held) - 1
        places = [last - step * back if last >= step * back else last for back in reversed(range(count))]
        yield second, [held[place] for place in places]


def interval_in_frames(interval: float, rate: float) -> int:
    """Frames from one to the next that is ``interval`` seconds later, the nearest whole number."""
    if not (math.isfinite(interval * rate) and interval * rate >= 1 - 1e-6):
        raise BundleInputError(
            f"frame_interval {interval} s is less than one frame at mask_rate {rate}; give a mask_rate of at least "
            f"{1 / interval if interval > 0 else 5:g}"
        )
    return round(interval * rate)


def earlier(second: float, known: Mapping[float, str], interval: float, count: int) -> list[str]:
    """The pictures of a clip, oldest first, of pictures whose seconds are known; the current one where one is missing.

    Args:
        second: of the current picture.
        known: second -> picture, of the same folder.
        interval, count: see above. A picture counts that is a quarter of the interval away at most.
    """
    wanted = [second - interval * back for back in reversed(range(count))]
    near = [min(known, key=lambda one: abs(one - time)) for time in wanted]
    pairs = zip(near, wanted, strict=True)
    return [known[one if abs(one - time) <= interval / 4 else second] for one, time in pairs]
