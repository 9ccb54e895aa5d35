"""How a frame of PyAV is turned and mirrored to be seen as it was meant."""

from typing import Any, NamedTuple

import numpy as np


class Orientation(NamedTuple):
    """What is done to a stored picture, in this order.

    Attributes:
        swapped: rows become columns.
        left_right, up_down: it is mirrored.
    """

    swapped: bool = False
    left_right: bool = False
    up_down: bool = False


def orientation(frame: Any) -> Orientation:
    """The nearest of the eight that the display matrix of an ``av.VideoFrame`` says.

    The matrix takes stored x and y to x' = a x + c y and y' = b x + d y (ISO/IEC 14496-12, 8.3.2; FFmpeg's display.h).
    The angle that PyAV makes of it (``rotation``) does not know mirrors: it turns a mirrored picture upside down.
    """
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return Orientation()
    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
    return Orientation(True, c < 0, b < 0) if abs(b) > abs(a) else Orientation(False, a < 0, d < 0)
