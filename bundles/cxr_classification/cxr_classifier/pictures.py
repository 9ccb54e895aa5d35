"""Read a PNG or JPEG."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from cxr_classifier.errors import BundleInputError
from cxr_classifier.intensity import stretch

FORMATS = ("PNG", "JPEG", "MPO")
LARGEST = 89_478_485  # pixels: Pillow warns above it, and refuses only twice as many
IHDR_END = 26  # bytes of a PNG up to the bit depth and the colour type
COLOUR_TYPES = (2, 4, 6)  # of a PNG: colours, grey with transparency, colours with transparency
DEEP = ("I", "F")  # first letters of Pillow's modes of 16 bits and more
COLOURED = 25  # of 255: a pixel whose channels differ by more is coloured
MAX_COLOURED = 0.05  # share of coloured pixels; coloured marks and text on an X-ray are fewer


def read_picture(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read a PNG or JPEG, turned upright by its EXIF orientation.

    Values of 8 bits are display values and are divided by 255. Values of 16 bits have no window, and many files hold
    12-bit values in them: they are stretched, see :func:`cxr_classifier.intensity.stretch`. Colours are turned to grey,
    transparent pixels to black.

    Returns:
        The grey values (H, W) as stored, those of colours rounded, and the image (H, W), float32 in [0, 1].

    Raises:
        BundleInputError: damaged, too large, or a colour photograph.
    """
    try:
        with Image.open(path, formats=FORMATS) as file:
            if file.width * file.height > LARGEST:
                raise BundleInputError(f"{path} has {file.width}×{file.height} pixels; export it smaller")
            file.load()
            image = ImageOps.exif_transpose(file)
    except BundleInputError:
        raise
    except Exception as error:  # noqa: BLE001 - each of Pillow's decoders has its own exceptions
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].replace(str(path), "the file")
        raise BundleInputError(f"{path} is damaged ({reason}); copy or export it again") from error
    if image.mode.startswith(DEEP):
        stored = np.asarray(image)
        return stored, stretch(stored)
    if _loses_depth(path, image):
        raise BundleInputError(f"{path} has 16 bits a colour, the upper 8 nearly empty; export it grey")
    grey = _grey(image, path)
    return np.rint(grey).astype(np.uint8), grey / 255


def _loses_depth(path: Path, image: Image.Image) -> bool:
    """True where Pillow, which reads the upper 8 bits of 16 bits a colour, loses values of 12 bits or less."""
    with path.open("rb") as stream:
        head = stream.read(IHDR_END)
    deep_colour = head.startswith(b"\x89PNG") and head[24] == 16 and head[25] in COLOUR_TYPES
    return deep_colour and max(high for _, high in image.convert("RGB").getextrema()) < 16


def _grey(image: Image.Image, path: Path) -> np.ndarray:
    """Grey values (H, W), float32 in 0 to 255, of an image of 8-bit channels."""
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L"), dtype=np.float32)
    rgba = np.asarray(image.convert("RGBA"), dtype=np.float32)
    colours = rgba[..., :3] * (rgba[..., 3:] / 255)
    coloured = np.ptp(colours, axis=-1) > COLOURED
    if coloured.mean() > MAX_COLOURED:
        raise BundleInputError(
            f"{path} is a colour photograph ({coloured.mean():.0%} of its pixels show a colour); give the X-ray itself"
        )
    return colours @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
