"""``fedmed view``: pictures of scans, videos and sites. They show patients: treat them as you treat the images."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedmed.commands.options import Dots, command, group, split_words
from fedmed.errors import DataError, FedMedError
from fedmed.files import private_files

app = group("Pictures of scans, videos and sites, with their labels and what a model says.")


@command(app)
@private_files()
def case(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="Chest CT in HU, NIfTI.")],
    mask: Annotated[Path, typer.Argument(metavar="MASK", help="The predicted mask, on the same grid.")],
    out: Annotated[Path, typer.Option(metavar="PNG")],
    truth: Annotated[Path | None, typer.Option(metavar="MASK", help="A reader's mask, on the same grid.")] = None,
    title: Annotated[str | None, typer.Option(help="Default: the image's name.")] = None,
    azimuth: Annotated[float, typer.Option(help="3D: degrees towards the patient's left.")] = 24,
    elevation: Annotated[float, typer.Option(help="3D: degrees from above.")] = 10,
    dpi: Dots = 110,
) -> None:
    """Draw a scan with its mask: three planes through the largest lesion, and the lungs in 3D.

      fedmed view case scan.nii.gz scan_covid.nii.gz --out scan.png
      fedmed view case scan.nii.gz scan_covid.nii.gz --truth scan_seg.nii.gz --out scan.png --title "Case 7"

    Prediction orange, truth blue; in 3D, blue is the part of the truth that the prediction missed. The patient's right
    is on the left. A picture shows the patient's anatomy: treat it as you treat the scan.
    """
    from fedmed.reports.palette import save_picture
    from fedmed.reports.planes import Viewpoint, case_figure, read_case
    from fedmed.reports.plots import style

    read = read_case(image, mask, truth)
    with style():
        save_picture(case_figure(read, Viewpoint(azimuth=azimuth, elevation=elevation), title), out, dpi)
    print(out)


@command(app)
@private_files()
def clients(
    sites: Annotated[list[str], typer.Argument(metavar="SITE...", help="YAML of a site, or its name.")],
    out: Annotated[Path, typer.Option(metavar="PNG", help="The sheet.")],
    listed: Annotated[
        Literal["training", "validation", "testing"], typer.Option("--list", help="Whose videos.")
    ] = "training",
    frames: Annotated[int, typer.Option(min=1, max=8, help="Of each site.")] = 4,
    dpi: Dots = 110,
) -> None:
    """Draw the videos of several sites side by side: frames, mean image, colours, and how often tools are seen.

      fedmed view clients lap_hei1 lap_hei2 lap_cho1 lap_cho2 lap_cho3 --out clients.png
      fedmed view clients /data/cho/cho1/cho1.yaml /data/cho/cho2/cho2.yaml --list testing --out clients.png

    Frames show patients, and before the camera is inside perhaps faces and names: treat the sheet as you treat the
    videos. The width of the black edge is that of the dark columns left and right, the median of the frames looked at.
    """
    from fedmed.reports.client_sheet import client_sheet, look_at
    from fedmed.reports.plots import png, style
    from fedmed.reports.sheet import write_output
    from fedmed.settings.site import load_named

    looks = [look_at(load_named(site), listed, frames) for site in sites]
    with style():
        write_output(out, png(client_sheet(looks), dots=dpi))
    print(out)


@command(app)
@private_files()
def phases(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A site's folder of a job, or, with --site, a run.")],
    site: Annotated[str | None, typer.Option(help="Name of a site of a simulation.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path(),
    title: Annotated[str | None, typer.Option(help="Default: the site's name, or the folder's.")] = None,
    dpi: Dots = 200,
) -> None:
    """Draw what a site kept when it tested a model of phases, and never sends: ribbons of its videos, and features.

      fedmed view phases KIT/JOB --out pictures                     # at a site of a federation, its folder of the job
      fedmed view phases runs/phases --site lap_bay --out pictures  # of a simulation

    Writes ribbons.png, the best, the median and the worst video, and features.png, frames in two dimensions and two
    videos frame against frame, as in a simulation's report. The pictures tell how long a patient's operation and its
    phases took: treat them as you treat the videos.
    """
    from fedmed.reports.site_pictures import phase_pictures, tested_site, write_pictures

    folder = folder.expanduser().absolute()
    tested = tested_site(folder, site, title or site or folder.name)
    print(*write_pictures(lambda: phase_pictures(tested), out, dpi), sep="\n")


@command(app)
@private_files()
def video(
    video: Annotated[
        str,
        typer.Argument(metavar="VIDEO", help="File or folder of frames; with --site also its name or place."),
    ],
    table: Annotated[Path | None, typer.Argument(metavar="[PREDICTION.csv]", help="The same as --predictions.")] = None,
    site: Annotated[str | None, typer.Option(help="The site's YAML, or its name in the federation.")] = None,
    listed: Annotated[
        Literal["testing", "training", "validation", "unlabeled"] | None,
        typer.Option(
            "--list",
            help="In which VIDEO is a place, counted from 0. Default: testing, or the first that there is.",
        ),
    ] = None,
    labels: Annotated[Path | None, typer.Option(metavar="CSV", help="Table of labels by time.")] = None,
    masks: Annotated[Path | None, typer.Option(metavar="FOLDER", help="PNG files named by milliseconds.")] = None,
    called: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The same, as a bundle's inference wrote them: OUT/masks/VIDEO."),
    ] = None,
    classes: Annotated[
        list[str], typer.Option(metavar="NAME,NAME", help="What 1, 2, … stand for in masks: shaft,wrist,jaw.")
    ] = [],
    run: Annotated[
        Path | None,
        typer.Option(help="A run that called labels of the site's videos: its workspace, or the site's folder."),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Columns 'second' and 'p_<label>', probabilities.")
    ] = None,
    threshold: Annotated[float, typer.Option(help="Probability from which a label is called.")] = 0.5,
    out: Annotated[Path | None, typer.Option(metavar="PNG", help="The sheet. Default: VIDEO.png, here.")] = None,
    film: Annotated[
        Path | None, typer.Option("--video", metavar="MP4", help="Also the whole video with its labels.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, max=100, help="Frames a second of --video. Default: the video's own, at most 25."),
    ] = None,
    frames: Annotated[int, typer.Option(min=1, max=120, help="Of the sheet.")] = 12,
    title: Annotated[str | None, typer.Option(help="Default: the video's name.")] = None,
    dpi: Dots = 110,
) -> None:
    """Draw a video with its labels: frames spread over it, and a row along time for each label.

      fedmed view video LHB-005 --site lap_hei2 --out sheet.png                  # a video of a site, by name
      fedmed view video 0 --site lap_hei2 --run runs/tools --out sheet.png       # the first of 'testing'
      fedmed view video a.mp4 --labels a.csv --masks a_masks --out sheet.png --video a_labels.mp4
      fedmed view video a.mp4 predictions.csv --out sheet.png                    # of a bundle's inference
      fedmed view video a.mp4 --masks a_masks --called eval/masks/a.mp4 --video parts.mp4

    Truth blue, prediction orange; true masks are outlined, called ones filled. Labels and true masks of a site's video
    are those of its datalist. A run keeps what it called of labels, for --run; called masks are written by the
    inference of its exported bundle, for --called. --video plays the whole video with all of it. Frames show the
    patient, and before the camera is inside perhaps faces and names: treat the pictures as you treat the video.
    """
    if run and not site:
        raise FedMedError("--run needs --site: a run tests videos of sites")
    if sum(map(bool, (run, predictions, table))) > 1:
        raise FedMedError("give one of PREDICTION.csv, --predictions and --run")
    from fedmed.data.prepare.console import progress
    from fedmed.data.prepare.pool import Track
    from fedmed.reports.find_video import files_of
    from fedmed.reports.palette import save_picture
    from fedmed.reports.plots import style
    from fedmed.reports.video_overlay import thumbnail_times, video_figure, write_overlay
    from fedmed.reports.viewed_video import Still, read_viewed, stills

    path, files = Path(video), {"labels": labels, "masks": masks, "predictions": predictions or table}
    if site:
        path, listed_files = files_of(site, video, listed, run)
        files = {part: given or listed_files.get(part) for part, given in files.items()}
    viewed = read_viewed(path, files["labels"], files["masks"], files["predictions"], threshold, called)
    viewed = replace(viewed, classes=split_words(classes))
    if not viewed.rows:
        print(f"note: nothing is known of {path}; give --labels, --masks, --called or --predictions", file=sys.stderr)
    times = thumbnail_times(viewed, frames)
    track: Track[Still] = progress("Reading frames")
    read = list(track(stills(viewed, times, 3 * dpi), len(times)))
    if not read:
        raise DataError(f"{path}: is much shorter than its header says; write it anew: ffmpeg -i IN out.mp4")
    sheet = out or Path(f"{path.stem}.png")
    with style():
        save_picture(video_figure(viewed, read, title or path.stem), sheet, dpi, None)
        if film:
            write_overlay(viewed, film, rate, progress("Writing frames"))
    print(*[sheet, *([film] if film else [])], sep="\n")
