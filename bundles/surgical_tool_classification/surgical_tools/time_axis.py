"""Places of frames along the time of a picture, drawn with Pillow alone."""

import math
from collections.abc import Sequence
from statistics import median

from PIL import Image, ImageDraw, ImageFont

Font = ImageFont.ImageFont | ImageFont.FreeTypeFont

WIDE, TOP, BOTTOM, RIGHT = 1200, 44, 44, 30  # pixels
PAPER, PANEL, INK, QUIET, LINE = "#ffffff", "#f3f4f6", "#1f2430", "#a9b1bd", "#6b7280"
TICKS = 8  # at most
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 36000)  # seconds between them
PLAIN = 1.5  # times the usual interval, beyond which there is a gap after a frame


class TimeAxis:
    """WIDE columns of pixels from the first frame to the end of the last.

    A frame lasts until the next, or as long as most others where that is far off or there is none.

    Args:
        seconds: of each frame, in order; None = not known. Where any is known, frames without are not shown; where none
            is, the axis counts frames.
    """

    def __init__(self, seconds: Sequence[float | None]) -> None:
        self.timed = any(second is not None for second in seconds)
        starts = seconds if self.timed else [float(number) for number in range(len(seconds))]
        known = [start for start in starts if start is not None]
        self.usual = median(b - a for a, b in zip(known, known[1:], strict=False)) if len(known) > 1 else 1.0
        self.usual = self.usual or 1.0  # several pictures of one time
        self.first, self.end = known[0], known[-1] + self.usual
        following = iter([*known[1:], self.end])
        self.spans = [range(0) if start is None else self._columns(start, next(following)) for start in starts]

    def draw(self, draw: ImageDraw.ImageDraw, font: Font, left: int, y: int) -> None:
        """Draw marks below ``y``, with times or numbers of frames."""
        length = self.end - self.first
        step = next((step for step in STEPS if length / step <= TICKS), math.ceil(length / TICKS))
        for number in range(math.ceil(self.first / step), math.ceil(self.end / step)):
            x = left + self._x(number * step)
            draw.line((x, y, x, y + 5), fill=LINE)
            label = _clock(number * step) if self.timed else str(number * step + 1)
            draw.text((x, y + 8), label, fill=INK, font=font, anchor="ma" if x > left else "la")
        draw.text((left - 10, y + 8), "min:s" if self.timed else "frame", fill=LINE, font=font, anchor="ra")

    def _columns(self, start: float, following: float) -> range:
        """At least one, so that a short frame is not lost."""
        end = following if following - start <= PLAIN * self.usual else start + self.usual
        first = min(int(self._x(start)), WIDE - 1)
        return range(first, min(WIDE, max(first + 1, math.ceil(self._x(end)))))

    def _x(self, second: float) -> float:
        return (second - self.first) * WIDE / (self.end - self.first)


def empty_picture(
    title: str, left: int, height: int
) -> tuple[Image.Image, ImageDraw.ImageDraw, ImageFont.FreeTypeFont]:
    """A picture with a title above, and with room for names to the left, a time axis below and ``height`` between."""
    picture = Image.new("RGB", (left + WIDE + RIGHT, TOP + height + BOTTOM), PAPER)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(16)
    shown = title.encode(errors="backslashreplace").decode()  # of a file's name that is not UTF-8
    draw.text((12, 12), shown, fill=INK, font=font)
    return picture, draw, font


def _clock(second: float) -> str:
    return f"{int(second) // 60}:{int(second) % 60:02d}"
