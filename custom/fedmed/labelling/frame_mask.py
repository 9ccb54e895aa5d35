"""Read a reader's mask of a picture, such as a frame of a video."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmed.data.image_size import opened_picture
from fedmed.data.video.frame_masks import picture
from fedmed.errors import DataError, first_line

PNG, LARGEST = ".png", 255


def read_frame_mask(path: Path, image: Path) -> NDArray[np.uint8]:
    """Return a mask on the pixels of its picture: (H, W), a class a value, 0 is everything else.

    Args:
        path: PNG file of one channel; of a palette the places count, not the colours.
        image: the picture.

    Raises:
        DataError: another kind of file, unreadable, another size, colours, or values above 255.
    """
    if path.suffix.lower() != PNG:
        raise DataError(f"'{path.suffix}' files are not read for pictures; save the mask as {PNG}")
    values = picture(path)
    try:
        with opened_picture(image) as opened:
            size = (opened.height, opened.width)
    except OSError as error:
        raise DataError(f"the picture {image.name} cannot be read ({first_line(error)}); restore it") from error
    if values.ndim != 2 or values.shape != size:
        raise DataError(
            f"the mask has shape {values.shape}, its picture {size}; draw it on the picture, in one channel"
        )
    if values.dtype != bool and not 0 <= values.min() <= values.max() <= LARGEST:
        raise DataError(f"the mask has the value {values.max()}; a class is a number from 1 to {LARGEST}")
    return values.astype(np.uint8)
