"""``fedmed prepare``: a folder of a hospital's files becomes a checked site of a federation."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedmed.commands.options import AS_IT_IS, command, demand_hospitals, group, split_words, stop_says
from fedmed.commands.research import run_module
from fedmed.errors import DataError, FedMedError
from fedmed.files import fedmed_home, private_files
from fedmed.site_names import name_fault

app = group("Make a site of a folder of images, which are checked one by one.")
NOTHING = "prepare: interrupted; nothing was written"
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the files, searched at any depth.")]
Site = Annotated[str, typer.Option("--site", "--name", help="The site's name in the federation.")]
Out = Annotated[
    Path | None, typer.Option(metavar="SITE_DIR", help="Folder to write. Default: $FEDMED_HOME/sites/SITE.")
]
Split = Annotated[
    tuple[float, float, float],
    typer.Option(metavar="TRAIN VAL TEST", help="Shares of the patients in the three lists."),
]
Pattern = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Finds the patient in the relative path, for example '^(.*)_scan'."),
]
OwnPatients = Annotated[
    bool, typer.Option("--own-patients", help="Take each file as another patient, whatever the names look like.")
]
Seed = Annotated[int, typer.Option(help="Of the split.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that read images.")]
Copy = Annotated[bool, typer.Option("--copy", help="Link or copy the files into SITE_DIR instead of pointing at them.")]
SHARES, CORES = (0.6, 0.2, 0.2), min(4, os.cpu_count() or 1)


def place(site: str, out: Path | None) -> Path:
    """Folder of a site that is made.

    Raises:
        DataError: ``site`` is not a name that jobs can use.
    """
    if fault := name_fault(site):
        raise DataError(f"--site {fault}")
    return out or fedmed_home() / "sites" / site


@command(app)
@private_files()
def ct(
    folder: Folder,
    site: Site,
    out: Out = None,
    masks: Annotated[Path | None, typer.Option(help="Folder of NIfTI masks named as their images.")] = None,
    mask_suffix: Annotated[
        str | None, typer.Option(help="What a mask's name has after the case's name, for example _seg.")
    ] = None,
    image_suffix: Annotated[
        str | None, typer.Option(help="What an image's name has after the case's name, for example _0000.")
    ] = None,
    mask_value: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Values of a mask that are foreground, for example 255; others count as 0."),
    ] = None,
    mask_threshold: Annotated[
        float | None,
        typer.Option(metavar="T", help="Values above T are foreground, for masks of probabilities."),
    ] = None,
    role: Annotated[
        Literal["labelled", "unlabelled"] | None, typer.Option(help="Default: labelled if masks are named.")
    ] = None,
    split: Split = SHARES,
    patient_pattern: Pattern = None,
    own_patients: OwnPatients = False,
    seed: Seed = 0,
    workers: Workers = CORES,
    copy: Copy = False,
) -> None:
    """Turn a folder of CT volumes (NIfTI, DICOM series) into a site of a federation.

      fedmed prepare ct /data/chest --site site_a --masks /data/chest_masks

    Writes datalist.json, SITE.yaml, prepare_report.csv and prepare_report.md into --out. See docs/data/ct.md.
    """
    from fedmed.data.prepare.console import print_site, progress
    from fedmed.data.prepare.ct_site import prepare_site
    from fedmed.data.prepare.volume_faults import Foreground, parse_values

    with stop_says(NOTHING):
        prepared = prepare_site(
            folder, place(site, out), site, masks=masks, mask_suffix=mask_suffix, image_suffix=image_suffix, role=role,
            foreground=Foreground(parse_values(mask_value), mask_threshold), fractions=split, seed=seed,
            patient_pattern=patient_pattern, workers=workers, copy=copy, own_patients=own_patients,
            track=progress("Reading volumes"),
        )  # fmt: skip
    print_site(prepared, site)


@command(app)
@private_files()
def cxr(
    folder: Folder,
    site: Site,
    out: Out = None,
    table: Annotated[
        Path | None, typer.Option(help="CSV, see above. Default: FOLDER/labels.csv if there is one.")
    ] = None,
    file_column: Annotated[str | None, typer.Option(metavar="NAME", help="The table's column of the file.")] = None,
    label_column: Annotated[str | None, typer.Option(metavar="NAME", help="… of the label.")] = None,
    patient_column: Annotated[str | None, typer.Option(metavar="NAME", help="… of the patient.")] = None,
    view_column: Annotated[str | None, typer.Option(metavar="NAME", help="… of the view.")] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Put all images into the list 'unlabeled', whatever their labels.")
    ] = False,
    classes: Annotated[list[str], typer.Option(metavar="CLASS,CLASS", help="Refuse images with any other label.")] = [],
    merge: Annotated[
        list[str], typer.Option(metavar="NEW=OLD,OLD", help="Give several labels one name. Repeatable.")
    ] = [],
    separator: Annotated[
        str, typer.Option(metavar="MARK", help="What divides several findings in one cell, such as '|'.")
    ] = "",
    uncertain: Annotated[
        Literal["drop", "negative", "positive"] | None,
        typer.Option(help="What becomes of -1 in a table of 1, 0 and -1 (CheXpert)."),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            metavar="VIEW,VIEW", help="Take these views only, for example PA,AP or PA,AP,unknown; any takes all."
        ),
    ] = None,
    body_part: Annotated[
        str | None, typer.Option(metavar="PART,PART", help="Take these body parts, for example HAND; any takes all.")
    ] = None,
    split: Split = SHARES,
    patient_pattern: Pattern = None,
    own_patients: OwnPatients = False,
    seed: Seed = 0,
    workers: Workers = CORES,
    copy: Copy = False,
) -> None:
    """Turn a folder of chest X-rays (PNG, JPEG, DICOM) into a site of a federation.

      fedmed prepare cxr /data/xrays --site site_a --table /data/xrays/labels.csv
      fedmed prepare cxr /data/xrays --site site_a --unlabelled

    The table is a CSV with the columns file (relative to the folder), label, patient and view. Images without a label
    go to the list "unlabeled"; images from the side, and of other parts than the chest, are refused. Writes
    datalist.json, SITE.yaml, prepare_report.csv and prepare_report.md into --out. See docs/data/xray.md.
    """
    from fedmed.data.prepare.console import print_site, progress
    from fedmed.data.prepare.xray_site import Labels, prepare_xray_site
    from fedmed.data.prepare.xray_view import parse_wanted

    named = {"file": file_column, "label": label_column, "patient": patient_column, "view": view_column}
    columns = {what: name for what, name in named.items() if name}
    default = folder / "labels.csv"
    table = table or (default if default.is_file() else None)
    if columns and table is None:
        raise DataError("columns are named, but no table is given; give --table")
    labels = Labels(table, columns, merge, split_words(classes), separator, uncertain or "", unlabelled)
    with stop_says(NOTHING):
        prepared = prepare_xray_site(
            folder, place(site, out), site, labels=labels, wanted=parse_wanted(view, body_part), fractions=split,
            seed=seed, patient_pattern=patient_pattern, workers=workers, copy=copy, own_patients=own_patients,
            track=progress("Reading images"),
        )  # fmt: skip
    print_site(prepared, site)


@command(app)
@private_files()
def video(
    folder: Folder,
    site: Site,
    out: Out = None,
    layout: Annotated[
        str | None,
        typer.Option(
            help="How the folder is laid out: plain, cholec80 and others, which a wrong name lists. Default: the one "
            "that it obviously has, else plain."
        ),
    ] = None,
    phases: Annotated[list[str], typer.Option(metavar="NAME,NAME", help="Refuse tables with any other phase.")] = [],
    tools: Annotated[list[str], typer.Option(metavar="NAME,NAME", help="Refuse tables with other tools.")] = [],
    leave_out: Annotated[
        list[str], typer.Option(metavar="PHASE", help="Leave out its frames (folders of frames). Repeatable.")
    ] = [],
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Put all videos into the list 'unlabeled', whatever their labels.")
    ] = False,
    each: Annotated[bool, typer.Option("--each", help="Make a site of each video, SITE_VIDEO.")] = False,
    split_by: Annotated[
        Literal["black-edge"] | None,
        typer.Option(
            help="Make three sites: SITE1 of videos with large black edges left and right, SITE2 intermediate, SITE3 "
            "small."
        ),
    ] = None,
    clients: Annotated[
        Path | None,
        typer.Option(
            metavar="YAML",
            help="Make a site of each client, SITE_CLIENT, with its lists; research/experiments/clients has those of "
            "Markert (2022).",
        ),
    ] = None,
    edges: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="SMALL INTERMEDIATE",
            help="Largest shares of the width that are a small and an intermediate edge. Default: thirds of the "
            "measured.",
        ),
    ] = None,
    blocks: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="SECONDS GAP",
            help="Cut folders of single frames into blocks, in turn for training and testing, without the frames "
            "between.",
        ),
    ] = None,
    size: Annotated[tuple[int, int], typer.Option(metavar="H W", help="Of frames, to foretell their space.")] = (
        224,
        224,
    ),
    rate: Annotated[float, typer.Option(help="Frames a second that are looked at and foretold.")] = 1.0,
    names_rate: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Of folders of frames without frames.csv: the numbers in the names of frames a second, for example 25 "
            "if each frame of the video is there, 1 if they are named by their second.",
        ),
    ] = None,
    split: Split = SHARES,
    patient_pattern: Pattern = None,
    own_patients: OwnPatients = False,
    seed: Seed = 0,
    workers: Workers = CORES,
    copy: Copy = False,
) -> None:
    """Turn a folder of recorded operations (videos or frames, with labels) into a site of a federation.

      fedmed prepare video /data/lap --site site_a
      fedmed prepare video /data/cholect50 --site cholect50 --each            # a site for each video
      fedmed prepare video /data/cholec80 --site cho --split-by black-edge    # three: cho1, cho2, cho3
      fedmed prepare video /data/frames --site b --names-rate 25              # a folder of numbered frames a video

    Writes datalist.json, SITE.yaml, prepare_report.csv and prepare_report.md into --out; of several sites into a folder
    each below it. See docs/data/video.md.
    """
    if sum(map(bool, (each, split_by, clients))) > 1:
        raise FedMedError("--each, --split-by and --clients exclude each other")
    if edges and not split_by:
        raise FedMedError("--edges are limits of --split-by black-edge; give both")
    from fedmed.data.prepare.video_inspect import WantedVideos
    from fedmed.data.prepare.video_sites import VideoFolder, prepare_videos
    from fedmed.data.video.frame_settings import FrameSettings

    wanted = WantedVideos(
        layout, split_words(phases) or None, split_words(tools) or None, tuple(leave_out), unlabelled, patient_pattern,
        FrameSettings(size, rate, names_rate=names_rate), blocks,
    )  # fmt: skip
    given = VideoFolder(folder, place(site, out), site, wanted, split, seed, workers, copy, own_patients)
    with stop_says(NOTHING):
        prepare_videos(given, each, clients, split_by is not None, edges)


@command(app, settings=AS_IT_IS)
def demo(context: typer.Context) -> None:
    """Make the images or videos of the synthetic hospitals before the first job needs them."""
    demand_hospitals()
    run_module("fedmed_demo", context.args)
