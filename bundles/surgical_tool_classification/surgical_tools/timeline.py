"""Probabilities along time as a picture, drawn with Pillow alone."""

from collections.abc import Sequence
from pathlib import Path

from surgical_tools.time_axis import INK, LINE, PANEL, QUIET, TOP, WIDE, TimeAxis, empty_picture

LEFT, ROW, GAP = 190, 46, 8  # pixels
SEEN = "#d9730d"


def draw_timeline(
    path: Path,
    title: str,
    classes: Sequence[str],
    rows: Sequence[Sequence[float] | None],
    threshold: float,
    seconds: Sequence[float | None],
) -> None:
    """Write a PNG: for each class a row of bars along time, as high as the probability, coloured where it is seen.

    Args:
        path: file to write.
        title: written above.
        classes: names of the J classes.
        rows: J probabilities for each of the frames in order; None, a gap, for one that could not be read.
        threshold: probability from which a class counts as seen; a line in each row.
        seconds: of the frames, see :class:`surgical_tools.time_axis.TimeAxis`.
    """
    height = len(classes) * (ROW + GAP)
    title = f"{title}: probabilities along time, orange from {threshold:g} on"
    picture, draw, font = empty_picture(title, LEFT, height)
    axis = TimeAxis(seconds)
    highest = _highest(rows, axis)
    for number, name in enumerate(classes):
        top = TOP + number * (ROW + GAP)
        draw.rectangle((LEFT, top, LEFT + WIDE - 1, top + ROW), fill=PANEL)
        draw.text((LEFT - 10, top + ROW / 2), name, fill=INK, font=font, anchor="rm")
        for x, values in highest.items():
            colour = SEEN if values[number] >= threshold else QUIET
            draw.line((LEFT + x, top + ROW, LEFT + x, top + ROW * (1 - values[number])), fill=colour)
        level = top + ROW * (1 - threshold)
        draw.line((LEFT, level, LEFT + WIDE - 1, level), fill=LINE)
    axis.draw(draw, font, LEFT, TOP + height + 6)
    picture.save(path)


def _highest(rows: Sequence[Sequence[float] | None], axis: TimeAxis) -> dict[int, list[float]]:
    """Largest probabilities among the frames below each column of pixels, so that a short call is not lost."""
    columns: dict[int, list[float]] = {}
    for row, span in zip(rows, axis.spans, strict=True):
        for x in span if row is not None else ():
            columns[x] = [max(pair) for pair in zip(columns.get(x, row), row, strict=True)]
    return columns
