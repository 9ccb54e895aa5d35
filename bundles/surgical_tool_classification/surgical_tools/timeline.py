"""Probabilities along time as a picture, drawn with Pillow alone."""

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

WIDE, LEFT, ROW, GAP, TOP, BOTTOM = 1200, 190, 46, 8, 44, 44  # pixels
PAPER, PANEL, INK, QUIET, SEEN, LINE = "#ffffff", "#f3f4f6", "#1f2430", "#a9b1bd", "#d9730d", "#6b7280"
TICKS = 8  # at most, along time


def draw_timeline(
    path: Path,
    title: str,
    classes: Sequence[str],
    rows: Sequence[Sequence[float] | None],
    threshold: float,
    seconds: float | None = None,
) -> None:
    """Write a PNG: for each class a row of bars along time, as high as the probability, coloured where it is seen.

    Args:
        path: file to write.
        title: written above.
        classes: names of the J classes.
        rows: J probabilities for each of the frames in order; None, a gap, for one that could not be read.
        threshold: probability from which a class counts as seen; a line in each row.
        seconds: from one frame to the next; None: the axis counts frames.
    """
    height = TOP + len(classes) * (ROW + GAP) + BOTTOM
    picture = Image.new("RGB", (LEFT + WIDE + 30, height), PAPER)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(16)
    shown = title.encode(errors="backslashreplace").decode()  # of a file's name that is not UTF-8
    draw.text((12, 12), f"{shown}: probabilities along time, orange from {threshold:g} on", fill=INK, font=font)
    for number, name in enumerate(classes):
        top = TOP + number * (ROW + GAP)
        draw.rectangle((LEFT, top, LEFT + WIDE - 1, top + ROW), fill=PANEL)
        draw.text((LEFT - 10, top + ROW / 2), name, fill=INK, font=font, anchor="rm")
        for x in range(WIDE):
            if (value := _highest(rows, number, x)) is not None:
                colour = SEEN if value >= threshold else QUIET
                draw.line((LEFT + x, top + ROW, LEFT + x, top + ROW * (1 - value)), fill=colour)
        level = top + ROW * (1 - threshold)
        draw.line((LEFT, level, LEFT + WIDE - 1, level), fill=LINE)
    _axis(draw, font, height - BOTTOM + 6, len(rows), seconds)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def _highest(rows: Sequence[Sequence[float] | None], number: int, x: int) -> float | None:
    """Largest probability among the frames below a column of pixels, so that a short call is not lost."""
    first, end = x * len(rows) // WIDE, max(x * len(rows) // WIDE + 1, (x + 1) * len(rows) // WIDE)
    return max((row[number] for row in rows[first:end] if row is not None), default=None)


def _axis(draw: ImageDraw.ImageDraw, font: ImageFont.ImageFont, y: int, frames: int, seconds: float | None) -> None:
    each = max(1, math.ceil(frames / TICKS))
    for frame in range(0, frames, each):
        x = LEFT + frame * WIDE / frames
        draw.line((x, y, x, y + 5), fill=LINE)
        label = str(frame + 1) if seconds is None else f"{int(frame * seconds) // 60}:{int(frame * seconds) % 60:02d}"
        draw.text((x, y + 8), label, fill=INK, font=font, anchor="ma" if frame else "la")
    unit = "frame" if seconds is None else "min:s"
    draw.text((LEFT - 10, y + 8), unit, fill=LINE, font=font, anchor="ra")
