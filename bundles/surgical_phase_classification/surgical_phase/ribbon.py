"""Phases along time as a picture, drawn with Pillow alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surgical_phase.time_axis import INK, PANEL, PAPER, QUIET, TOP, WIDE, TimeAxis, empty_picture

LEFT, BAND, ROW, GAP = 300, 40, 40, 8  # pixels
# After Okabe and Ito (2008), told apart with every common colour vision; from the ninth phase on they repeat.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b5539b", "#b97f00", "#56b4e9", "#7a5c3e", "#3a3f4a")


def draw_ribbon(
    path: Path,
    title: str,
    phases: Sequence[str],
    rows: Sequence[Sequence[float] | None],
    seconds: Sequence[float | None],
) -> None:
    """Write a PNG: a band of the phases that are called, and below it each phase's probability along time.

    Bars are as high as the probability, and have the phase's colour where it is called: where it is the likeliest.

    Args:
        path: file to write.
        title: written above.
        phases: names of the C phases.
        rows: C probabilities for each of the frames in order; None, a gap, for one that could not be read.
        seconds: of the frames, see :class:`surgical_phase.time_axis.TimeAxis`.
    """
    height = BAND + GAP + len(phases) * (ROW + GAP)
    picture, draw, font = empty_picture(f"{title}: phase along time", LEFT, height)
    axis = TimeAxis(seconds)
    highest, frames = below(rows, axis, len(phases))
    draw.text((LEFT - 10, TOP + BAND / 2), "phase", fill=INK, font=font, anchor="rm")
    for x in np.flatnonzero(frames.any(axis=0)).tolist():
        colour = COLOURS[int(frames[:, x].argmax()) % len(COLOURS)]
        draw.line((LEFT + x, TOP, LEFT + x, TOP + BAND), fill=colour)
    for number, name in enumerate(phases):
        top, accent = TOP + BAND + GAP + number * (ROW + GAP), COLOURS[number % len(COLOURS)]
        draw.rectangle((LEFT, top, LEFT + WIDE - 1, top + ROW), fill=PANEL)
        draw.rectangle((LEFT - 22, top + ROW / 2 - 6, LEFT - 10, top + ROW / 2 + 6), fill=accent, outline=PAPER)
        draw.text((LEFT - 30, top + ROW / 2), name.replace("_", " "), fill=INK, font=font, anchor="rm")
        for x in np.flatnonzero(highest[number]).tolist():
            colour = accent if frames[number, x] else QUIET
            draw.line((LEFT + x, top + ROW, LEFT + x, top + ROW * (1 - highest[number, x])), fill=colour)
    axis.draw(draw, font, LEFT, TOP + height + 6)
    picture.save(path)


def below(rows: Sequence[Sequence[float] | None], axis: TimeAxis, phases: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the frames below each column of pixels, (C, WIDE): the highest probability, and how many have each phase."""
    highest, frames = np.zeros((phases, WIDE)), np.zeros((phases, WIDE), int)
    for row, span in zip(rows, axis.spans, strict=True):
        if row is not None and span:
            columns = slice(span.start, span.stop)
            highest[:, columns] = np.maximum(highest[:, columns], np.array(row)[:, None])
            frames[int(np.argmax(row)), columns] += 1
    return highest, frames
