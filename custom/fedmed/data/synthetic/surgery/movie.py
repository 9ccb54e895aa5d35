"""Write frames as an MP4 file."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np

from fedmed.errors import DataError


def write_movie(path: Path, frames: Iterable[np.ndarray], rate: float, size: tuple[int, int]) -> None:
    """Write ``frames``, each (H, W, 3) uint8 of red, green, blue, as H.264 with frame n at n / ``rate`` seconds.

    Args:
        path: the file to write.
        frames: pictures of ``size``.
        rate: frames a second.
        size: columns and rows, both even.

    Raises:
        DataError: PyAV is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise DataError("made-up videos are written with PyAV, which is not installed; run scripts/setup.sh") from error
    exact = Fraction(rate).limit_denominator(1001)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=exact, options={"crf": "21", "preset": "superfast"})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.thread_count = 1
        for number, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, 1 / exact
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
