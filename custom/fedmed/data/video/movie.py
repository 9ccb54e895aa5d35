"""Write frames as an MP4 file."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedmed.data.video.frame_rules import Frame
from fedmed.data.video.source import need_av

TICKS = 12800  # a second, of frames at times of their own


def write_movie(
    path: Path | BinaryIO,
    frames: Iterable[Frame],
    rate: float,
    times: NDArray[np.float64] | None = None,
) -> None:
    """Write ``frames`` as H.264 with frame n at n / ``rate`` seconds, or at ``times[n]``.

    Args:
        path: the file to write, or one that is open.
        frames: (H, W, 3) uint8 of red, green, blue, all of one size; H and W are even.
        rate: frames a second, with ``times`` their mean.
        times: seconds, increasing from 0, one a frame.

    Raises:
        DataError: PyAV is not installed.
    """
    av, exact, tick = need_av(), Fraction(rate).limit_denominator(1001), Fraction(1, TICKS)
    with av.open(str(path) if isinstance(path, Path) else path, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=exact, options={"crf": "21", "preset": "superfast"})
        stream.pix_fmt, stream.codec_context.thread_count = "yuv420p", 1
        if times is not None:
            stream.codec_context.time_base = tick
        for number, image in enumerate(frames):
            if not number:
                stream.height, stream.width = image.shape[:2]
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = (number, 1 / exact) if times is None else (round(times[number] * TICKS), tick)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
