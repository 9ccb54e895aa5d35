"""Report of masks of frames: scores of videos, of each class at each site, and frames with their masks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.reports.label_charts import labels_of, spoken
from fedmed.reports.palette import EDGE, INK, MARKS, MUTED, png_address, site_colours
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import PICTURES, Run, Site
from fedmed.reports.run_files import column, read_arrays, read_table
from fedmed.reports.run_report import Chart, Images, LegendEntry
from fedmed.reports.scored_report import most_islands
from fedmed.reports.sheet import SLANTED, draw_cells
from fedmed.reports.site_rows import SiteRow, site_rows
from fedmed.reports.slice_picture import contours, svg_path
from fedmed.reports.video_report import VideoReport
from fedmed.reports.words import count, fixed, join
from fedmed.training.case_recorder import pictured
from fedmed.training.mask_recorder import FAR, OVERLAPS, SCORES, newest_frame
from fedmed.training.video_recorder import frames_file

TITLES = {"dice": "Dice", "iou": "IoU", "hd95": "HD95, pixels", "assd": "ASSD, pixels"}
ALL = "mean of the sites"
ISLANDS = (
    f"Distant islands ({FAR:.0%} of the frame's diagonal or more from all that is true), a few of which make HD95 "
    "large where Dice is high"
)
KEYS = ("image", "truth", "prediction", "classes", "dice", "case")
COVER = 0.35  # opacity of a mask over its frame
SCORE, SECOND = "dice", "second"
HIGH = 1.45  # inches of a panel


class Segmentation2DReport(VideoReport):
    """A run whose videos each have a score, and whose sites send the scores of each class."""

    scores_note = (
        "Of each frame the mean over the classes that are there or called, 1 where none is; of each video the mean "
        "over its frames. HD95 and ASSD are distances of outlines in pixels of the frames that the network sees; where "
        "a class is there and not called, or called and not there, they are the frame's diagonal."
    )
    columns = {"Dice": "dice_mean", "IoU": "iou_mean", "HD95": "hd95_mean", "ASSD": "assd_mean"}
    of_video = {"Dice": "dice", "IoU": "iou", "HD95": "hd95", "ASSD": "assd"}
    by_class = (
        "Each class",
        "Means over the frames of a video in whose truth or prediction the class is, then over the videos of a site.",
    )
    shown = (
        "What the model draws",
        "The best, the median and the worst frame of each site: above the true masks, below those that the model "
        "called.",
    )

    features = (
        "Videos along time",
        "Dice of each frame that has a mask, of the best, the median and the worst test video of each site: the thick "
        "line is the mean of the classes in the frame, a thin one is a class, with a gap where it is in neither mask.",
    )
    case_note = (
        "Of each video the frame whose Dice, below it, changed most to the side to which the video changed. Point at a "
        "picture to see it without outlines."
    )

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        distances = {head: row.test.get(key) for head, key in self.columns.items() if head in ("HD95", "ASSD")}
        return super().cells(run, row) | {head: fixed(value, 1) for head, value in distances.items()}

    def findings(self, run: Run) -> list[str]:
        islands = [text for site in run.sites if "islands" in site.cases and (text := islands_in(site))]
        return [f"{ISLANDS}: {'; '.join(islands)}."] if islands else []

    def class_charts(self, run: Run) -> dict[str, Chart]:
        return {"classes": Chart(class_tables)} if labels_of(run, "dice_") else {}

    def further_charts(self, run: Run) -> dict[str, Chart]:
        """Dice over the time of videos, at each site where their tables are here."""
        videos = {site.name: scored_videos(site) for site in run.sites}
        return {f"time_{name}": Chart.of(dice_over_time, scored, name) for name, scored in videos.items() if scored}

    def figure(self, run: Run, site: Site) -> Figure | None:
        pictures = list(site.pictures(read_frame))
        return frames_with_masks(pictures, site.name, _own_colours(run)) if pictures else None

    def case_picture(self, run: Run, models: Mapping[str, Path], name: str, images: Images | None) -> Markup:
        """The frame of a video that changed most, with the true outlines and those of each model, side by side."""
        if images is None:
            return Markup("")
        drawn = Markup("")
        for place, (title, one) in enumerate(changed_frame(models, images).items()):
            frame = Markup('<use href="#{0}"/>' if place else '<image id="{0}" href="{1}" width="{2}" height="{3}"/>')
            height, width = one.truth.shape
            below = frame.format(name, "" if place else png_address(one.image), width, height)
            words = f"{title}: {one.case}, Dice {fixed(one.dice, 2)}"
            drawn += Markup("<div>{}<span>{}</span></div>").format(outlined(one, below, _own_colours(run)), words)
        return Markup('<div class="views">{}</div>').format(drawn)

    def case_legend(self, run: Run) -> list[LegendEntry]:
        inks = mask_colours([one.name for one in run.classes], _own_colours(run))
        lines = [LegendEntry("true outline", INK, "line"), LegendEntry("outline of the model", INK, "dashes")]
        return [*lines, *(LegendEntry(spoken(name), ink) for name, ink in inks.items())]


def _own_colours(run: Run) -> dict[str, str]:
    return {one.name: one.colour for one in run.classes if one.colour}


def islands_in(site: Site) -> str:
    """Count the distant islands in a site's test videos, and name the videos with most; empty without any."""
    total, named = most_islands(site, "video")
    if not total:
        return ""
    frames, seen = int(np.nansum(column(site.cases, "island_frames"))), int(column(site.cases, "n_frames").sum())
    return f"{site.name} {total}, in {frames} of {count(seen, 'frame')}: {named}"


@dataclass(frozen=True)
class ScoredVideo:
    """A test video: times (T,) in s, the frames' Dice (T,), and class -> (T,), NaN where it is in neither mask."""

    kind: str
    case: str
    times: NDArray[np.float64]
    dice: NDArray[np.float64]
    of_classes: Mapping[str, NDArray[np.float64]]


def class_tables(run: Run) -> Figure:
    """Four panels: Dice, IoU, HD95 and ASSD of each class at each site, and means of the sites; a dash: no number."""
    classes, rows = labels_of(run, "dice_"), [row for row in site_rows(run) if row.n_cases]
    names = [row.name for row in rows]
    figure = Figure(figsize=(WIDTH, 2 * (1.2 + 0.36 * (len(names) + 1))))
    figure.set_layout_engine("constrained", hspace=0.1)
    for axes, score in zip(figure.subplots(2, 2).flat, SCORES, strict=True):
        values = [[row.test.get(f"{score}_{label}") for label in classes] for row in rows]
        columns = [[v for v in column if v is not None] for column in zip(*values, strict=True)]
        values.append([fmean(known) if known else None for known in columns])
        shown = np.array([[np.nan if v is None else v for v in row] for row in values])
        digits, largest = (2, 1.0) if score in OVERLAPS else (1, float(np.nanmax(shown, initial=1e-9)))
        texts = [[f"{v:.{digits}f}" if np.isfinite(v) else "–" for v in row] for row in shown]
        draw_cells(axes, texts, shown / largest, np.arange(len(shown))[:, None] == len(rows) + 0 * shown)
        axes.set_title(f"{TITLES[score]}{'' if score in OVERLAPS else ' (lower is better)'}")
        axes.set_xticks(range(len(classes)), classes, **(SLANTED if len(classes) > 5 else {}))
        axes.set_yticks(range(len(shown)), [*names, ALL] if score in ("dice", "hd95") else [], color=INK)
    return figure


@dataclass(frozen=True)
class FramePicture:
    """A frame: image (H, W, 3) float in 0…1, masks (H, W) of 0, 1, …, and the names of what 1, 2, … stand for."""

    kind: str
    case: str
    dice: float
    image: NDArray[np.float64]
    truth: NDArray[np.uint8]
    prediction: NDArray[np.uint8]
    classes: tuple[str, ...]


def read_frame(path: Path, kind: str) -> FramePicture:
    """Read ``best.npz`` and the like; DataError for a damaged file or masks of another shape."""
    image, truth, prediction, classes, dice, case = read_arrays(path, KEYS)
    if image.ndim != 3 or truth.shape != image.shape[:2] or prediction.shape != truth.shape:
        raise DataError(f"{path}: image, truth and prediction are not of one size; evaluate the site again")
    names = tuple(map(str, classes))
    return FramePicture(kind, str(case), float(dice), image[..., :3] / 255.0, truth, prediction, names)


def changed_frame(models: Mapping[str, Path], images: Images) -> dict[str, FramePicture]:
    """The frame of a video whose Dice by the last model is furthest from that by the first, to the same side as the
    mean of all frames.

    Args:
        models: title of each -> masks of all frames, as the recorder wrote them.
        images: gives the clip that ends with a frame.

    Raises:
        DataError: a file is missing or damaged, or they are not of the same frames.
    """
    dices = {path: read_arrays(path, ["dice"])[0] for path in models.values()}
    first, *others = dices.values()
    if any(one.shape != first.shape for one in others):
        raise DataError(f"{', '.join(map(str, dices))}: are not of the same frames; evaluate the site again")
    change = others[-1] - first
    n, shown = int((change * np.sign(change.mean())).argmax()), dict[str, FramePicture]()
    for title, path in models.items():
        before, frames, classes, masks = read_arrays(path, ("first", "frames", "classes", f"masks_{n}"))
        image = next(iter(shown.values())).image if shown else newest_frame(images(int(before) + n)) / 255.0
        called, truth = masks
        names = tuple(map(str, classes))
        shown[title] = FramePicture(title, str(frames[n]), float(dices[path][n]), image, truth, called, names)
    return shown


def frames_with_masks(pictures: Sequence[FramePicture], site: str, colours: Mapping[str, str]) -> Figure:
    """One or more frames side by side, above with their true masks, below with those that the model called.

    ``colours``: of classes that have one of their own.
    """
    known = tuple(dict.fromkeys(name for one in pictures for name in one.classes))
    inks, wide = mask_colours(known, colours), WIDTH / 3
    tall = max(one.image.shape[0] / one.image.shape[1] for one in pictures) * wide
    figure = Figure(figsize=(wide * len(pictures), 2 * tall + 1.0), layout="constrained")
    figure.suptitle(site, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    above, below = figure.subplots(2, len(pictures), squeeze=False)
    for one, top, bottom in zip(pictures, above, below, strict=True):
        _overlay(top, one, one.truth, inks)
        _overlay(bottom, one, one.prediction, inks)
        top.set_title(f"{one.kind}: {one.case}", fontsize=9.5)
        bottom.set_title(f"called, Dice {one.dice:.2f}", fontsize=9.5)
    patches = [Patch(color=ink, linewidth=0, label=name) for name, ink in inks.items()]
    figure.legend(handles=patches, loc="outside lower left", ncols=6, frameon=False, fontsize=9)
    return figure


def mask_colours(classes: Sequence[str], colours: Mapping[str, str]) -> dict[str, str]:
    """Class -> colour of its mask; ``colours``: of classes that have one of their own."""
    return {name: colours.get(name) or MARKS[place % len(MARKS)] for place, name in enumerate(classes)}


def outlined(picture: FramePicture, frame: Markup, colours: Mapping[str, str]) -> Markup:
    """A frame as inline SVG, with solid true outlines and dashed ones of the prediction in the colours of the classes.

    Args:
        picture: whose masks are drawn.
        frame: SVG element that draws the image.
        colours: of classes that have one of their own.
    """
    casings, paths = Markup(""), Markup("")  # a dark line below each: on bright tissue the coloured one alone vanishes
    inks = mask_colours(picture.classes, colours)
    for line, mask in (("truth", picture.truth), ("prediction", picture.prediction)):
        for place, ink in enumerate(inks.values(), start=1):
            if drawn := svg_path(mask == place, (1.0, 1.0)):
                casings += Markup('<path class="casing" d="{}"/>').format(drawn)
                paths += Markup('<path class="{}" style="stroke: {}" d="{}"/>').format(line, ink, drawn)
    height, width = picture.truth.shape
    whole = '<svg class="slice" viewBox="0 0 {} {}" role="img" aria-label="{}">{}<g class="marks">{}{}</g></svg>'
    return Markup(whole).format(width, height, f"{picture.kind}: {picture.case}", frame, casings, paths)


def _overlay(axes: Axes, picture: FramePicture, mask: NDArray[np.uint8], inks: Mapping[str, str]) -> None:
    """A frame, its mask as a thin cover with outlines."""
    shown, (rows, columns) = picture.image.copy(), mask.shape
    for place, name in enumerate(picture.classes, start=1):
        shown[mask == place] = (1 - COVER) * shown[mask == place] + COVER * np.array(to_rgb(inks[name]))
    axes.imshow(shown, extent=(0, columns, rows, 0), interpolation="nearest")
    for place, name in enumerate(picture.classes, start=1):
        for x, y in (line.T for line in contours(mask == place, (1.0, 1.0))):
            axes.plot(x, y, color=inks[name], linewidth=1.2, path_effects=EDGE)
    axes.set_axis_off()


def scored_videos(site: Site) -> list[ScoredVideo]:
    """The best, the median and the worst test video of a site whose files are here; one may stand for several.

    Raises:
        DataError: a table of frames is damaged; names it.
    """
    if site.folder is None or SCORE not in site.cases:
        return []
    places, kinds = pictured(column(site.cases, SCORE).tolist()), dict[int, list[str]]()
    for kind in PICTURES:
        kinds.setdefault(places[kind], []).append(kind)
    names = {place: str(site.cases["case"].iloc[place]) for place in kinds}
    files = {place: frames_file(site.folder / "evaluation", place, name) for place, name in names.items()}
    return [_read(files[place], join(ranks), names[place]) for place, ranks in kinds.items() if files[place].is_file()]


def _read(path: Path, kind: str, case: str) -> ScoredVideo:
    table = read_table(path)
    if not {SECOND, SCORE} <= set(table) or table.empty:
        raise DataError(
            f"{path}: needs the columns '{SECOND}' and '{SCORE}' and a line a frame; evaluate the site again"
        )
    times, columns = _numbers(table, SECOND), [name for name in table if name.startswith(f"{SCORE}_")]
    if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(f"{path}: the column '{SECOND}' must hold increasing numbers; evaluate the site again")
    of_classes = {name.removeprefix(f"{SCORE}_"): _numbers(table, name) for name in columns}
    return ScoredVideo(kind, case, times, _numbers(table, SCORE), of_classes)


def _numbers(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    return column(table, name).astype(np.float64)


def dice_over_time(videos: Sequence[ScoredVideo], site: str) -> Figure:
    """A panel for each video, one or more: the Dice of its frames as a thick line, that of each class as a thin one."""
    inks = site_colours(list(dict.fromkeys(name for video in videos for name in video.of_classes)))
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
