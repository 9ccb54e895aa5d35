"""Find and read the frames and videos to infer."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform
from PIL import Image

from .errors import BundleInputError

log = logging.getLogger(__name__)
PICTURES = (".png", ".jpg", ".jpeg")
WRITTEN = ("masks", "overlays", "ribbons", "timelines")  # folders of pictures that these bundles' inference writes
VIDEOS = (
    ".mp4",
    ".avi",
    ".mov",
    ".mkv",
    ".m4v",
    ".mpg",
    ".mpeg",
    ".mts",
    ".m2ts",
    ".ts",
    ".vob",
    ".wmv",
    ".webm",
    ".mxf",
)


def list_frames(folder: str | Path, output_dir: str | Path | None = None) -> list[str]:
    """Return a video, or the PNG and JPEG files and videos of a folder at any depth, sorted; hidden ones are ignored.

    Args:
        folder: where they are.
        output_dir: where inference writes; pictures that an earlier one wrote there are left out, and the log says how
            many. None = elsewhere.

    Raises:
        BundleInputError: no such file or folder, or no picture or video in it.
    """
    root = Path(folder)
    paths = [root] if root.is_file() else sorted(root.rglob("*")) if root.is_dir() else []
    wanted = [path for path in paths if _is_wanted(path) and not _hidden(path, root)]
    written = {Path(output_dir, name).resolve() for name in WRITTEN} if output_dir is not None else set()
    written_earlier = {path for path in wanted if written & set(path.resolve().parents)}
    if written_earlier:
        log.warning(
            "%s: %d pictures of an earlier inference are left out, such as %s",
            root,
            len(written_earlier),
            min(written_earlier).name,
        )
    frames = [str(path) for path in wanted if path not in written_earlier]
    if not frames:
        raise BundleInputError(
            f"{root} holds no picture (.png, .jpg) and no video ({', '.join(VIDEOS)}); set dataset_dir to a folder of "
            "frames of a video, or to a video"
        )
    return frames


class LoadFramed(MapTransform):
    """Make a frame (3, H, W), float32 in [0, 1], of a path or a picture, scaled to a size whatever its proportions.

    Args:
        keys: entries to read.
        size: (H, W) in pixels.

    Raises:
        BundleInputError: a size below 8 pixels; when called, a file that is no picture.
    """

    def __init__(self, keys: KeysCollection, size: Sequence[int], allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        if len(size) != 2 or min(size) < 8:
            raise BundleInputError(f"image_size is {list(size)}; give height and width of at least 8 pixels")
        self.size = (int(size[0]), int(size[1]))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = read_frame(case[key], self.size)
        return case


def read_frame(source: str | Path | Image.Image, size: tuple[int, int]) -> torch.Tensor:
    """Read a PNG or JPEG, or take a picture as it is; see :class:`LoadFramed`."""
    if isinstance(source, Image.Image):
        return _scaled(source, size)
    try:
        with Image.open(source, formats=("PNG", "JPEG")) as file:
            return _scaled(file, size)
    except Exception as error:  # noqa: BLE001 - each of Pillow's decoders has its own exceptions
        raise BundleInputError(f"{source} is damaged or no picture ({error}); export the frame again") from error


def _scaled(picture: Image.Image, size: tuple[int, int]) -> torch.Tensor:
    scaled = picture.convert("RGB").resize(size[::-1], Image.Resampling.BILINEAR)
    return torch.from_numpy(np.asarray(scaled, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()


def _is_wanted(path: Path) -> bool:
    return path.suffix.lower() in (*PICTURES, *VIDEOS)


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
