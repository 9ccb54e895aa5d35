"""A video played with its labels: what is there and what the model calls written into each frame, rows below."""

from functools import cache, partial
from itertools import count
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageColor, ImageDraw, ImageFont

from fedmed.data.prepare.pool import Track
from fedmed.data.video.frame_rules import Frame
from fedmed.data.video.movie import write_movie
from fedmed.errors import DataError, FedMedError
from fedmed.files import write_atomically
from fedmed.reports.dark_picture import NIGHT
from fedmed.reports.palette import INK_DARK
from fedmed.reports.video_sheet import COLOURS, clock, draw_labels
from fedmed.reports.video_stills import Still, outline_colour, stills
from fedmed.reports.viewed_video import ViewedVideo

NARROWEST, WIDEST, FASTEST = 640, 1280, 25.0  # pixels; frames a second
ROW, LETTER = 22, 7.8  # pixels: of a row of labels, and of a letter of its name
WORDS, MARGIN = 15, 12  # pixels: of letters in the frame, and what stays free
DOTS = 100  # an inch


def own_rate(video: ViewedVideo) -> float:
    """Frames a second of a video, 25 at most; 25 where its header does not tell."""
    try:
        return min(FASTEST, video.source.count() / video.source.seconds())
    except (DataError, ZeroDivisionError):
        return FASTEST


def write_overlay(video: ViewedVideo, path: Path, rate: float | None = None, track: Track[Still] | None = None) -> None:
    """Write an MP4 of the whole video, completely or not at all.

    Args:
        video: what is known.
        path: the file.
        rate: frames a second; None is :func:`own_rate`.
        track: shows how far it is; see :func:`fedmed.data.prepare.pool.run_all`.

    Raises:
        DataError: the video is damaged, or a mask does not fit.
        FedMedError: the file cannot be written.
    """
    rate, width = rate or own_rate(video), 2 * round(min(max(video.width, NARROWEST), WIDEST) / 2)
    times = (number / rate for number in count())
    found = stills(video.source, video.path, video.masks, times, width, video.called)
    found = track(found, round(video.source.seconds() * rate)) if track else found
    draw = partial(overlaid, video, *label_panel(video, width))
    try:
        write_atomically(path, lambda stream: write_movie(stream, map(draw, found), rate))
    except OSError as error:
        raise FedMedError(f"{path} cannot be written ({error}); choose another --video") from error


def label_panel(video: ViewedVideo, width: int) -> tuple[Frame, float, float]:
    """The rows of labels as pixels (P, width, 3) below a frame, where time 0 lies in them, and pixels a second."""
    if not video.rows:
        return np.empty((0, width, 3), np.uint8), 0.0, 0.0
    height, left = ROW * len(video.rows) + MARGIN, MARGIN + LETTER * max(map(len, video.rows))
    figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS, facecolor=NIGHT)
    canvas = FigureCanvasAgg(figure)
    long = width - left - MARGIN
    axes = figure.add_axes((left / width, MARGIN / 2 / height, long / width, 1 - MARGIN / height))
    draw_labels(axes, video)
    axes.set_xticks([])
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3], left, long / axes.get_xlim()[1]


def overlaid(video: ViewedVideo, panel: Frame, zero: float, scale: float, still: Still) -> Frame:
    """A frame with outlines and words, and below it the rows with a line at its time."""
    image = Image.fromarray(still.image)
    draw, letters = ImageDraw.Draw(image), _letters()
    lines = [([(x, y) for x, y in line.tolist()], outline_colour(value)) for value, line in still.outlines]
    for line, _ in lines:  # below the colour, which alone vanishes on tissue of its brightness
        draw.line(line, fill=NIGHT, width=4)
    for line, colour in lines:
        draw.line(line, fill=colour, width=2)
    words = [(clock(still.second), INK_DARK)]
    for kind, ribbon in video.ribbons.items():
        words.append((f"{kind}: {', '.join(ribbon.at(still.second)) or '–'}", COLOURS[kind]))
    for place, (text, colour) in enumerate(words):
        where = (MARGIN, MARGIN + 1.4 * WORDS * place)
        draw.text(where, text, fill=colour, font=letters, stroke_width=2, stroke_fill=NIGHT)
    below, now = panel.copy(), round(zero + scale * still.second)
    below[:, now : now + 2] = ImageColor.getrgb(INK_DARK)
    return np.concatenate([np.asarray(image), below])


@cache
def _letters() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), WORDS)  # it comes with Matplotlib
