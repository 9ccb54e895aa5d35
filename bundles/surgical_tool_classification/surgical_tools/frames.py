"""Find and read the frames to infer."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform
from PIL import Image

from surgical_tools.errors import BundleInputError

ENDINGS = (".png", ".jpg", ".jpeg")


def list_frames(folder: str | Path) -> list[str]:
    """Return the PNG and JPEG files of a folder at any depth, sorted; hidden files and folders are ignored.

    Raises:
        BundleInputError: no such folder, or no picture in it.
    """
    root = Path(folder)
    paths = sorted(root.rglob("*")) if root.is_dir() else []
    found = [str(path) for path in paths if path.suffix.lower() in ENDINGS and not _hidden(path, root)]
    if not found:
        raise BundleInputError(f"{root} holds no .png or .jpg file; set dataset_dir to a folder of frames of a video")
    return found


class LoadFramed(MapTransform):
    """Read a path as a frame (3, H, W), float32 in [0, 1], scaled to a size whatever its proportions.

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
            case[key] = read_frame(Path(case[key]), self.size)
        return case


def read_frame(path: Path, size: tuple[int, int]) -> torch.Tensor:
    """Read a PNG or JPEG; see :class:`LoadFramed`."""
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as file:
            picture = file.convert("RGB").resize(size[::-1], Image.Resampling.BILINEAR)
    except Exception as error:  # noqa: BLE001 - each of Pillow's decoders has its own exceptions
        raise BundleInputError(f"{path} is damaged or no picture ({error}); export the frame again") from error
    return torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
