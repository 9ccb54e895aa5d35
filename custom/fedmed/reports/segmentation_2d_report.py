"""What a report shows of masks of frames: scores of videos, of each class at each site, and frames with their masks."""

from functools import partial
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from fedmed.reports.cells import SLANTED, draw_cells
from fedmed.reports.frame_masks import frames_with_masks, read_frame
from fedmed.reports.label_charts import labels_of
from fedmed.reports.palette import INK
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column
from fedmed.reports.run_report import Chart
from fedmed.reports.scores_over_time import ScoredVideo, dice_over_time, scored_videos
from fedmed.reports.site_rows import SiteRow, site_rows
from fedmed.reports.video_report import VideoReport
from fedmed.reports.words import count, fixed, join
from fedmed.training.mask_recorder import FAR
from fedmed.training.mask_scores import OVERLAPS, SCORES

TITLES = {"dice": "Dice", "iou": "IoU", "hd95": "HD95, pixels", "assd": "ASSD, pixels"}
ALL = "mean of the sites"
ISLANDS = (
    f"Distant islands ({FAR:.0%} of the frame's diagonal or more from all that is true), a few of which make HD95 "
    "large where Dice is high"
)
NAMED = 3  # videos with distant islands that are named, of a site


class Segmentation2DReport(VideoReport):
    """A run whose videos each have a score, and whose sites send the scores of each class."""

    told = (
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

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """Distances with one digit."""
        distances = {head: row.test.get(key) for head, key in self.columns.items() if head in ("HD95", "ASSD")}
        return super().cells(run, row) | {head: fixed(value, 1) for head, value in distances.items()}

    def findings(self, run: Run) -> list[str]:
        """Distant islands, where single videos are here."""
        found = [text for site in run.sites if "islands" in site.cases and (text := islands_in(site))]
        return [f"{ISLANDS}: {'; '.join(found)}."] if found else []

    def class_charts(self, run: Run) -> dict[str, Chart]:
        """The scores of each class at each site."""
        return {"classes": Chart(class_tables)} if labels_of(run, "dice_") else {}

    def further_charts(self, run: Run) -> dict[str, Chart]:
        """Dice over the time of videos, at each site where their tables are here."""
        found = {site.name: scored_videos(site) for site in run.sites}
        return {f"time_{name}": Chart(partial(_over_time, own, name)) for name, own in found.items() if own}

    def figure(self, run: Run, site: Site) -> Figure | None:
        """The best, the median and the worst frame of a site; None where they are not here."""
        pictures = list(site.pictures(read_frame))
        colours = {one.name: one.colour for one in run.classes if one.colour}
        return frames_with_masks(pictures, site.name, colours) if pictures else None


def islands_in(site: Site) -> str:
    """How many distant islands the model called in a site's test videos, and in which, most first; empty without."""
    counts, frames = (np.nan_to_num(column(site.cases, name)).astype(int) for name in ("islands", "island_frames"))
    order = [place for place in np.argsort(-counts, kind="stable").tolist() if counts[place]]
    if not order:
        return ""
    named = [f"{site.cases['case'].iloc[place]} ({counts[place]})" for place in order[:NAMED]]
    named += [count(len(order) - NAMED, "other video")] if len(order) > NAMED else []
    seen = int(column(site.cases, "n_frames").sum())
    return f"{site.name} {counts.sum()}, in {frames.sum()} of {count(seen, 'frame')}: {join(named)}"


def _over_time(videos: list[ScoredVideo], site: str, _: Run) -> Figure:
    return dice_over_time(videos, site, {})


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
