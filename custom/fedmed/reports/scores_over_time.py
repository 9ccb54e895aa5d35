"""Dice along the time of a video: of each frame that has a mask, and of each class in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.reports.palette import INK, LIGHT, MUTED
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import PICTURES, Site
from fedmed.reports.run_files import column, read_table
from fedmed.reports.words import join
from fedmed.training.evaluation_files import pictured
from fedmed.training.video_recorder import frames_file

SCORE, SECOND = "dice", "second"
HIGH = 1.45  # inches of a panel


@dataclass(frozen=True)
class ScoredVideo:
    """A test video: times (T,) in s, the frames' Dice (T,), and class -> (T,), NaN where it is in neither mask."""

    kind: str
    case: str
    times: NDArray[np.float64]
    dice: NDArray[np.float64]
    of_classes: Mapping[str, NDArray[np.float64]]


def scored_videos(site: Site) -> list[ScoredVideo]:
    """The best, the median and the worst test video of a site whose files are here; one may stand for several.

    Raises:
        DataError: a table of frames is damaged; names it.
    """
    if site.folder is None or SCORE not in site.cases:
        return []
    found, kinds = pictured(column(site.cases, SCORE).tolist()), dict[int, list[str]]()
    for kind in PICTURES:
        kinds.setdefault(found[kind], []).append(kind)
    names = {place: str(site.cases["case"].iloc[place]) for place in kinds}
    files = {place: frames_file(site.folder / "evaluation", place, name) for place, name in names.items()}
    return [_read(files[place], join(own), names[place]) for place, own in kinds.items() if files[place].is_file()]


def _read(path: Path, kind: str, case: str) -> ScoredVideo:
    table = read_table(path)
    if not {SECOND, SCORE} <= set(table) or table.empty:
        raise DataError(
            f"{path}: needs the columns '{SECOND}' and '{SCORE}' and a line a frame; evaluate the site again"
        )
    times, own = _numbers(table, SECOND), [name for name in table if name.startswith(f"{SCORE}_")]
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(f"{path}: the column '{SECOND}' must hold increasing numbers; evaluate the site again")
    of_classes = {name.removeprefix(f"{SCORE}_"): _numbers(table, name) for name in own}
    return ScoredVideo(kind, case, times, _numbers(table, SCORE), of_classes)


def _numbers(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    return column(table, name).astype(np.float64)


def dice_over_time(videos: Sequence[ScoredVideo], site: str, colours: Mapping[str, str]) -> Figure:
    """A panel a video: the Dice of its frames as a thick line, that of each class as a thin one.

    Args:
        videos, site: at least one, and whose they are.
        colours: of the classes, as lines on white; others get one of the report's.
    """
    names = list(dict.fromkeys(name for video in videos for name in video.of_classes))
    inks = {name: colours.get(name) or LIGHT[place % len(LIGHT)] for place, name in enumerate(names)}
    figure = Figure(figsize=(WIDTH, HIGH * len(videos) + 0.75), layout="constrained")
    figure.suptitle(site, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    panels = figure.subplots(len(videos), 1, squeeze=False)[:, 0]
    for axes, video in zip(panels, videos, strict=True):
        _panel(axes, video, inks)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=8, frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, video: ScoredVideo, inks: Mapping[str, str]) -> None:
    unit, name = (60.0, "minutes") if video.times[-1] > 600 else (1.0, "seconds")
    axes.set_title(f"{video.kind}: {video.case}, mean {np.nanmean(video.dice):.2f}", fontsize=9.5, loc="left")
    for label, ink in inks.items():
        values = video.of_classes.get(label, np.full(len(video.times), np.nan))
        axes.plot(
            video.times / unit, values, color=ink, linewidth=1.0, alpha=0.85, label=label, marker=".", markersize=3
        )
    axes.plot(video.times / unit, video.dice, color=INK, linewidth=2.0, label="mean of a frame")
    axes.set(ylim=(-0.03, 1.03), xlabel=name, xlim=(0, max(video.times[-1] / unit, 1e-3)))
    axes.tick_params(axis="x", colors=MUTED)
