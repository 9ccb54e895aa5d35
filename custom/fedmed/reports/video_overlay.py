"""A video played with its labels: what is there and what the model calls written into each frame, rows below."""

from collections.abc import Sequence
from functools import cache, partial
from itertools import count
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageColor, ImageDraw, ImageFont

from fedmed.data.prepare.pool import Track
from fedmed.data.video.file_source import write_movie
from fedmed.data.video.frame_settings import Frame
from fedmed.errors import DataError, FedMedError
from fedmed.files import write_atomically
from fedmed.reports.palette import EDGE, GRID_DARK, INK_DARK, MARKS, MUTED_DARK, NIGHT, PREDICTION, TRUTH
from fedmed.reports.timelines import draw_ribbons
from fedmed.reports.viewed_video import CALLED, KNOWN, Still, ViewedVideo, outline_colour, stills

NARROWEST, WIDEST, FASTEST = 640, 1280, 25.0  # pixels; frames a second
STRIP, GLYPH = 22, 7.8  # pixels: of a row of labels, and of a letter of its name
WORDS, BORDER = 15, 12  # pixels: of letters in the frame, and what stays free
DOTS = 100  # an inch
WIDE, MARGIN, GAP, HEAD, FOOT = 13.0, 0.12, 0.08, 0.42, 0.4  # inches
ROW, LINE, LETTER = 0.25, 0.15, 0.078  # inches: a row of labels, a line of words below a frame, a letter of a name
COLUMNS, LETTERS = 6, 38  # frames in a row, letters in a line below one
COLOURS = {KNOWN: TRUTH, CALLED: PREDICTION}


def frame_rate(video: ViewedVideo) -> float:
    """Frames a second of a video, 25 at most; 25 where its header does not tell."""
    try:
        return min(FASTEST, video.source.count() / video.source.seconds())
    except (DataError, ZeroDivisionError):
        return FASTEST


def write_overlay(video: ViewedVideo, path: Path, rate: float | None = None, track: Track[Still] | None = None) -> None:
    """Write an MP4 of the whole video, completely or not at all.

    Args:
        video, path: what is known, and the file.
        rate: frames a second; None is :func:`frame_rate`.
        track: shows how far it is; see :func:`fedmed.data.prepare.pool.run_all`.

    Raises:
        DataError: the video is damaged, or a mask does not fit.
        FedMedError: the file cannot be written.
    """
    rate, width = rate or frame_rate(video), 2 * round(min(max(video.width, NARROWEST), WIDEST) / 2)
    times = (number / rate for number in count())
    frames = stills(video, times, width)
    frames = track(frames, round(video.source.seconds() * rate)) if track else frames
    draw = partial(overlaid, video, *label_panel(video, width))
    try:
        write_atomically(path, lambda stream: write_movie(stream, map(draw, frames), rate))
    except OSError as error:
        raise FedMedError(f"{path} cannot be written ({error}); choose another --video") from error


def label_panel(video: ViewedVideo, width: int) -> tuple[Frame, float, float]:
    """The rows of labels as pixels (P, width, 3) below a frame, where time 0 lies in them, and pixels a second."""
    if not video.rows:
        return np.empty((0, width, 3), np.uint8), 0.0, 0.0
    height, left = STRIP * len(video.rows) + BORDER, BORDER + GLYPH * max(map(len, video.rows))
    figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS, facecolor=NIGHT)
    canvas = FigureCanvasAgg(figure)
    long = width - left - BORDER
    axes = figure.add_axes((left / width, BORDER / 2 / height, long / width, 1 - BORDER / height))
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
        where = (BORDER, BORDER + 1.4 * WORDS * place)
        draw.text(where, text, fill=colour, font=letters, stroke_width=2, stroke_fill=NIGHT)
    below, now = panel.copy(), round(zero + scale * still.second)
    below[:, now : now + 2] = ImageColor.getrgb(INK_DARK)
    return np.concatenate([np.asarray(image), below])


@cache
def _letters() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), WORDS)  # it comes with Matplotlib


def clock(second: float) -> str:
    """``0:07``, ``12:34`` or ``1:02:03``."""
    minutes, seconds = divmod(int(second + 0.5), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"


def thumbnail_times(video: ViewedVideo, count: int) -> list[float]:
    """The middles of ``count`` equal parts of a video, each moved to the nearest mask of its part.

    Of a folder of frames at most as many as it has.
    """
    count = min(count, video.source.count()) if video.path.is_dir() else count
    part = video.source.seconds() / count
    middles, masks = (np.arange(count) + 0.5) * part, np.array(sorted(video.masks))
    if not len(masks):
        return middles.tolist()
    nearest = masks[np.abs(masks - middles[:, None]).argmin(axis=1)]
    return np.where(np.abs(nearest - middles) <= part / 2, nearest, middles).tolist()


def video_figure(video: ViewedVideo, frames: Sequence[Still], title: str) -> Figure:
    """Frames in rows of at most six, below each what it shows; below all, a row along time for each label.

    ``frames``: of the video, all of one size, at least one.
    """
    columns, said = max(3, -(-len(frames) // -(-len(frames) // COLUMNS))), video.ribbons.items()
    words = {kind: [wrap(", ".join(one.at(still.second)), LETTERS) for still in frames] for kind, one in said}
    lines = {kind: max(map(len, texts)) for kind, texts in words.items()}  # alike below all frames
    wide = (WIDE - 2 * MARGIN - (columns - 1) * GAP) / columns
    high = wide * frames[0].image.shape[0] / frames[0].image.shape[1]
    step, rows = high + LINE * sum(lines.values()) + 2 * GAP, ROW * len(video.rows)
    height = HEAD + -(-len(frames) // columns) * step + rows + FOOT
    figure = Figure(figsize=(WIDE, height), facecolor=NIGHT)
    _heading(figure, title, video, frames, 1 - 0.5 * HEAD / height)
    for number, still in enumerate(frames):
        row, column = divmod(number, columns)
        left, top = MARGIN + column * (wide + GAP), height - HEAD - row * step
        _picture(figure.add_axes((left / WIDE, (top - high) / height, wide / WIDE, high / height)), still)
        below = top - high - 0.5 * GAP
        for kind, texts in words.items():
            look: dict[str, Any] = {"color": COLOURS[kind], "fontsize": 7.5, "va": "top", "linespacing": 1.25}
            figure.text(left / WIDE, below / height, "\n".join(texts[number]), **look)
            below -= LINE * lines[kind]
    if rows:
        left = MARGIN + LETTER * max(map(len, video.rows)) + GAP
        axes = figure.add_axes((left / WIDE, FOOT / height, (WIDE - left - MARGIN) / WIDE, rows / height))
        draw_labels(axes, video)
        ticks = [still.second for still in frames][:: -(-len(frames) // 16)]
        axes.set_xticks(ticks, [clock(tick) for tick in ticks])
        axes.grid(visible=True, axis="x", color=GRID_DARK, linewidth=0.8)
    return figure


def draw_labels(axes: Axes, video: ViewedVideo) -> None:
    """Rows of labels along time on black, truth above prediction, and one with a mark for every mask."""
    draw_ribbons(axes, video.rows, [(one, COLOURS[kind]) for kind, one in video.ribbons.items()], line=GRID_DARK)
    if times := [*video.masks, *video.called]:
        axes.plot(times, [len(video.rows) - 1] * len(times), "|", color=MARKS[0], markersize=7)
    axes.set_xlim(0, max([video.source.seconds(), *(float(one.ends[-1]) for one in video.ribbons.values())]))
    axes.set_facecolor(NIGHT)
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", labelcolor=INK_DARK, labelsize=9)
    axes.tick_params(axis="x", labelcolor=MUTED_DARK)


def _heading(figure: Figure, title: str, video: ViewedVideo, frames: Sequence[Still], y: float) -> None:
    """The title, and what the colours mean."""
    figure.text(MARGIN / WIDE, y, title, color=INK_DARK, fontsize=11, fontweight="bold", va="center")
    values = sorted(
        {value for still in frames for value in (*still.covered, *(outlined for outlined, _ in still.outlines))}
    )
    legend = {kind: COLOURS[kind] for kind in video.ribbons} | {video.class_name(n): outline_colour(n) for n in values}
    legend |= {"filled: called": INK_DARK} if video.called else {}
    for place, (name, colour) in enumerate(reversed(legend.items())):
        figure.text(1 - (MARGIN + 0.95 * place) / WIDE, y, name, color=colour, fontsize=10, ha="right", va="center")


def _picture(axes: Axes, still: Still) -> None:
    height, width = still.image.shape[:2]
    axes.imshow(still.image, extent=(0, width, height, 0), interpolation="bilinear", aspect="auto")
    for value, (x, y) in ((value, line.T) for value, line in still.outlines):
        axes.plot(x, y, color=outline_colour(value), linewidth=1.2, path_effects=EDGE)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    words: dict[str, Any] = {"color": INK_DARK, "fontsize": 8, "path_effects": EDGE, "va": "top"}
    axes.text(0.02, 0.98, clock(still.second), transform=axes.transAxes, **words)
