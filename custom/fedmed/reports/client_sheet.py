"""Data of several sites, side by side (Markert 2022, Figures 5.2-5.5): frames, mean image, colours,
and how often each tool is seen.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from numpy.typing import NDArray

from fedmed.data.datalist import Video, load_datalist
from fedmed.data.video.file_source import open_video
from fedmed.data.video.frame_settings import BORDER_LEVEL, dark_sides, is_white
from fedmed.data.video.label_table import read_label_table
from fedmed.data.video.source import Damage
from fedmed.errors import DataError
from fedmed.reports.palette import INK, MUTED, site_colours
from fedmed.reports.plots import WIDTH
from fedmed.reports.viewed_video import upright
from fedmed.settings.site import SiteConfig

PIXELS, VIDEOS, FRAMES, BINS = 160, 12, 12, 48  # width of a frame; videos of a site, frames of a video; of a histogram
CHANNELS = {"red": "#c8322b", "green": "#2c8a4b", "blue": "#2b6cc8"}
SUMMARIES = 2  # columns after the frames: mean image and colours


@dataclass(frozen=True)
class ClientLook:
    """One site's list.

    Attributes:
        name: of the site.
        videos, rows: how many videos there are, and rows of their tables.
        frames: (N, H, W, 3) uint8, from up to ``VIDEOS`` videos, white ones left out.
        shown: places in ``frames`` of those that stand for the others, from different videos where there are several.
        shares: tool -> share of the rows that show it.
    """

    name: str
    videos: int
    rows: int
    frames: NDArray[np.uint8]
    shown: tuple[int, ...]
    shares: Mapping[str, float]

    @property
    def edge(self) -> float:
        """Width of the dark columns left and right, as a share of the frame's; the median of the frames."""
        return float(np.nanmedian(dark_sides(self.frames)))


def look_at(site: SiteConfig, key: str, shown: int) -> ClientLook:
    """Read some frames and all tables of a site's list.

    Args:
        site, key: the site, and one of its lists with labels.
        shown: how many frames stand for the others.

    Raises:
        DataError: the list is missing or empty, a table or video cannot be read, or all frames are white.
    """
    cases = load_datalist(site.data_root, site.datalist, key, form=Video())
    tables = [read_label_table(case["labels"], (), None) for case in cases]
    rows, counts = sum(len(table.seconds) for table in tables), Counter[str]()
    for table in tables:
        counts.update(table.shown())
    chosen = [Path(cases[round(place)]["video"]) for place in np.linspace(0, len(cases) - 1, min(VIDEOS, len(cases)))]
    height = _height(chosen[0])
    sampled = (frame for path in chosen for frame in open_video(path, 1.0).sample(FRAMES, height, PIXELS, True))
    frames = [frame for frame in sampled if not is_white(frame)]
    if not frames:
        raise DataError(f"{site.datalist}: no frame of '{key}' shows anything but white; look at the videos")
    places = tuple(np.linspace(0, len(frames) - 1, shown + 2)[1:-1].round().astype(int).tolist())
    return ClientLook(site.site, len(cases), rows, np.stack(frames), places, {t: n / rows for t, n in counts.items()})


def _height(path: Path) -> int:
    """Rows of a video's frames at the width of ``PIXELS``."""
    first = next(iter(open_video(path, 1.0).frames(Damage(path, refuse=False))), None)
    if first is None:
        raise DataError(f"{path}: none of its frames can be decoded; copy it again")
    tall, wide = upright(first)
    return max(2, round(PIXELS * tall / wide))


def client_sheet(looks: Sequence[ClientLook]) -> Figure:
    """Draw a row for each site and, below, the shares of all.

    Args:
        looks: at least one; all show as many frames.
    """
    shown = len(looks[0].shown)
    tallest = max(look.frames.shape[1] / PIXELS for look in looks)
    row = WIDTH / (shown + SUMMARIES + 0.6) * tallest
    figure = Figure(figsize=(WIDTH, len(looks) * row + 3.0), layout="constrained")
    heights = [*[row] * len(looks), 2.4]
    grid = GridSpec(
        len(looks) + 1, shown + SUMMARIES, figure, height_ratios=heights, width_ratios=[1] * (shown + 1) + [1.3]
    )
    for number, look in enumerate(looks):
        _client_row(
            [figure.add_subplot(grid[number, column]) for column in range(shown + SUMMARIES)], look, number == 0
        )
    _shares(figure.add_subplot(grid[len(looks), :]), looks)
    return figure


def _client_row(cells: Sequence[Axes], look: ClientLook, first: bool) -> None:
    *pictures, mean, colours = cells
    for axes, place in zip(pictures, look.shown, strict=True):
        axes.imshow(look.frames[place])
    mean.imshow(look.frames.mean(axis=0).round().astype(np.uint8))
    for axes in (*pictures, mean):
        axes.grid(visible=False)
        axes.set(xticks=[], yticks=[])
    facts = f"{look.name}\n{look.videos} videos\n{look.rows} rows\nedge {look.edge:.0%}"
    pictures[0].set_ylabel(facts, rotation=0, ha="right", va="center", color=INK)
    lit = look.frames[look.frames.max(axis=-1) > BORDER_LEVEL]
    for channel, (name, colour) in enumerate(CHANNELS.items()):
        numbers, edges = np.histogram(lit[:, channel], BINS, (0, 256))
        colours.plot(edges[:-1], numbers / max(1, len(lit)), color=colour, linewidth=1.1, label=name)
    colours.set(xlim=(0, 256), xticks=[0, 128, 255], yticks=[], ylim=(0, None))
    if first:
        for axes, words in ((pictures[0], "Frames"), (mean, "Mean image"), (colours, "Colours of lit pixels")):
            axes.set_title(words)


def _shares(axes: Axes, looks: Sequence[ClientLook]) -> None:
    tools = list(dict.fromkeys(tool for look in looks for tool in look.shares))
    colours, wide = site_colours([look.name for look in looks]), 0.8 / len(looks)
    for number, look in enumerate(looks):
        x = np.arange(len(tools)) + (number - (len(looks) - 1) / 2) * wide
        heights = [look.shares.get(tool, 0) for tool in tools]
        axes.bar(x, heights, wide * 0.9, color=colours[look.name], label=look.name, linewidth=0)
        for place, height in zip(x, heights, strict=True):
            axes.annotate(f"{100 * height:.0f}", (place, height), (0, 2), textcoords="offset points", ha="center",
                          fontsize=7, color=MUTED)  # fmt: skip
    axes.set_title("Share of the rows of the tables in which each tool is seen (%)")
    axes.set_xticks(range(len(tools)), [tool.replace("_", " ") for tool in tools], color=INK)
    axes.set(
        ylim=(0, 1.18 * max((share for look in looks for share in look.shares.values()), default=1) or 1), yticks=[]
    )
    axes.legend(frameon=False, ncols=len(looks), loc="upper right", handlelength=0.9, handleheight=0.9)
