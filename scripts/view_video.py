#!/usr/bin/env python3
"""Draw a video with its labels: frames spread over it, and a row along time for each label.

    scripts/view_video.py LHB-005 --site lap_hei2 --out sheet.png                       # a video of a site, by name
    scripts/view_video.py 0 --site lap_hei2 --run runs/tools --out sheet.png            # the first of 'testing'
    scripts/view_video.py a.mp4 --labels a.csv --masks a_masks --out sheet.png --video a_labels.mp4
    scripts/view_video.py a.mp4 predictions.csv --out sheet.png                         # of a bundle's inference
    scripts/view_video.py a.mp4 --masks a_masks --called eval/masks/a.mp4 --video parts.mp4 # true and called masks

Truth blue, prediction orange; true masks are outlined, called ones filled. Labels and true masks of a site's video are
those of its datalist. A run keeps what it called of labels, for --run; called masks are written by the inference of its
exported bundle, for --called.
--video plays the whole video with all of it. Frames show the patient, and before the camera is inside perhaps faces
and names: treat the pictures as you treat the video.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedmed.errors import DataError, FedMedError, JobError
from fedmed.files import private_files

if TYPE_CHECKING:  # elsewhere where it is used: it takes seconds to load, for which --help need not wait
    from fedmed.settings.site import SiteConfig

LISTS = ("testing", "training", "validation", "unlabeled")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("video", metavar="VIDEO", help="file or folder of frames; with --site also its name, or its place in --list")
    add("table", metavar="PREDICTION.csv", nargs="?", type=Path, help="the same as --predictions")
    add("--site", help="the site's YAML, or its name in the federation")
    add(
        "--list",
        choices=LISTS,
        help="in which VIDEO is a place, counted from 0 (default: testing, or the first that there is)",
    )
    add("--labels", type=Path, metavar="CSV", help="table of labels by time")
    add("--masks", type=Path, metavar="FOLDER", help="PNG files named by milliseconds")
    add("--called", type=Path, metavar="FOLDER", help="the same, as a bundle's inference wrote them: OUT/masks/VIDEO")
    add("--classes", nargs="+", default=(), metavar="NAME", help="what 1, 2, … stand for in masks: shaft wrist jaw")
    add("--run", type=Path, help="a run that called labels of the site's videos: its workspace, or the site's folder")
    add("--predictions", type=Path, metavar="CSV", help="columns 'second' and 'p_<label>', probabilities")
    add("--threshold", type=float, default=0.5, help="probability from which a label is called (default %(default)s)")
    add("--out", metavar="PNG", type=Path, help="the sheet (default: VIDEO.png, here)")
    add("--video", dest="film", metavar="MP4", type=Path, help="also the whole video with its labels")
    add("--rate", type=float, help="frames a second of --video (default: the video's own, at most 25)")
    add("--frames", type=int, choices=range(1, 121), metavar="1...120", default=12, help="of the sheet (default 12)")
    add("--title", help="default: the video's name")
    add("--dpi", type=int, choices=range(20, 601), metavar="20...600", default=110, help="default 110")
    options = parser.parse_args(arguments)
    if options.run and not options.site:
        parser.error("--run needs --site: a run tests videos of sites")
    if sum(map(bool, (options.run, options.predictions, options.table))) > 1:
        parser.error("give one of PREDICTION.csv, --predictions and --run")
    options.predictions = options.predictions or options.table
    if options.rate is not None and not 0 < options.rate <= 100:
        parser.error("--rate must be above 0, and 100 at most")
    return options


def find_video(site: "SiteConfig", video: str, key: str | None) -> tuple[str, int, dict[str, Path]]:
    """The list, the place in it and the files of the video that a person means by a place, a name or a path.

    Raises:
        DataError: there is no such video, or one of its files is missing.
    """
    from fedmed.data.datalist import UNLABELED, case_names, list_entries, listed_file, read_datalist
    from fedmed.data.video.label_table import unknown

    content = read_datalist(site.datalist)
    key = key or next((one for one in LISTS if content.get(one)), LISTS[0])
    keys = [key] if video.isdigit() else [key, *(one for one in LISTS if one != key)]
    listed = [(one, *item) for one in keys for item in enumerate(list_entries(site.datalist, one, video.isdigit()))]
    known = {}
    for one, place, entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("video"), str):
            path, (name,) = site.data_root / entry["video"], case_names([entry])
            names = {str(place)} if video.isdigit() else {name, path.name, entry["video"], str(path)}
            known[str(place) if video.isdigit() else name] = one
            if video in names or Path(video).absolute() == path:
                parts = ["video", *(part for part in ("labels", "masks") if part in entry and one != UNLABELED)]
                where = f"{site.datalist}: entry {place} of '{one}'"
                return one, place, {part: listed_file(site.data_root, where, part, entry) for part in parts}
    has = f"{unknown('video', video, list(known))}; a place is one in '{key}'" if known else f"'{key}' names no video"
    raise DataError(f"{site.datalist}: {has}")


def find_predictions(run: Path, site: str, key: str, place: int, video: Path) -> Path:
    """The table that a site wrote for a video when it tested a run's model.

    Raises:
        JobError: no test of videos is there, or none of this one.
    """
    from fedmed.data.datalist import case_names
    from fedmed.reports.run import JOB_FOLDER
    from fedmed.training.video_recorder import frames_file

    places = [where / "evaluation" for where in (run / site / JOB_FOLDER, run / JOB_FOLDER, run / "fedmed", run)]
    folder = next((one for one in places if (one / "frames").is_dir()), None)
    if folder is None:
        looked = ", ".join(map(str, places))
        raise JobError(f"no test of videos of {site} at {run}; looked at {looked}. Give a run that ended, where it ran")
    file = frames_file(folder, place, case_names([{"video": video}])[0])
    if key != "testing" or not file.is_file():
        tested = ", ".join(sorted(path.name for path in file.parent.iterdir()))
        raise JobError(f"the run at {run} did not test {video.name} of '{key}'; of 'testing' it tested {tested}")
    return file


def draw(options: argparse.Namespace) -> list[Path]:
    """Write what is asked for; return the files."""
    from fedmed.data.prepare.console import progress
    from fedmed.reports.palette import save_picture
    from fedmed.reports.plots import style
    from fedmed.reports.video_overlay import thumbnail_times, video_figure, write_overlay
    from fedmed.reports.viewed_video import read_viewed, stills
    from fedmed.settings.site import load_named

    path, labels, masks, predictions = Path(options.video), options.labels, options.masks, options.predictions
    if options.site:
        site = load_named(options.site)
        key, place, files = find_video(site, options.video, options.list)
        path, labels, masks = files["video"], labels or files.get("labels"), masks or files.get("masks")
        predictions = find_predictions(options.run, site.site, key, place, path) if options.run else predictions
    video = read_viewed(path, labels, masks, predictions, options.threshold, options.called)
    video = replace(video, classes=options.classes)
    if not video.rows:
        print(f"note: nothing is known of {path}; give --labels, --masks, --called or --predictions", file=sys.stderr)
    out = options.out or Path(f"{path.stem}.png")
    times = thumbnail_times(video, options.frames)
    pictures = stills(video, times, 3 * options.dpi)
    frames = list(progress("Reading frames")(pictures, len(times)))
    if not frames:
        raise DataError(f"{path}: is much shorter than its header says; write it anew: ffmpeg -i IN out.mp4")
    with style():
        save_picture(video_figure(video, frames, options.title or path.stem), out, options.dpi, None)
        if options.film:
            write_overlay(video, options.film, options.rate, progress("Writing frames"))
    return [out, *([options.film] if options.film else [])]


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when there is nothing to draw, or a file cannot be read or does not fit."""
    options = parse(arguments)
    try:
        print(*draw(options), sep="\n")
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
