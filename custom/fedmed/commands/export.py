"""``fedmed export``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedmed.commands.options import Replace, split_words
from fedmed.files import private_files

if TYPE_CHECKING:
    from fedmed.export.bundle import Exported


@private_files()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Finished run.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The bundle's folder: models/covid_ct_segmentation.")],
    model: Annotated[
        Literal["selected", "last"], typer.Option(help="Model of the best validation score, or the last.")
    ] = "selected",
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="Merge this site's own layers; needed after partial sharing.")
    ] = None,
    site_run: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="That site's run folder, when it is not in RUN.")
    ] = None,
    unseen: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For this site, which never trained: merge the mean of what all sites released "
            "(study: 'release_keep').",
        ),
    ] = None,
    word: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=TEXT",
            help="Word of that site, as in its YAML; it is written into the bundle, with the site's name. Repeatable.",
        ),
    ] = [],
    classes: Annotated[
        list[str],
        typer.Option(metavar="A,B", help="Names of what 1, 2, … stand for in masks, if the run's study gave none."),
    ] = [],
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write models/model.onnx, compared with PyTorch.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run MONAI's checks, and compare inference before and after.")
    ] = False,
    verify_on: Annotated[
        Path | None, typer.Option(metavar="IMAGE", help="The same on this image, in place of a generated one.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="V", help="Of the bundle. Default: the base version and a hash of the weights."),
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(metavar="KIT", help="Sign the bundle with the key of this startup kit.")
    ] = None,
    replace: Replace = False,
) -> None:
    """Make a MONAI bundle of a finished run: weights, merged configs, TorchScript, model card.

      fedmed export simulator_workspace models/covid_ct_segmentation
      fedmed export RUN OUT --onnx --verify
      fedmed export RUN OUT --unseen hospital_e --word procedure=lobectomy
      fedmed export RUN OUT --site hospital_a --site-run /opt/fedmed/kit/JOB_ID

    RUN is a simulator's workspace, a downloaded job result, or the server's run folder. OUT is the bundle's own
    folder; its name ends in _segmentation or _classification, because MONAI Label reads the task from it. After a run
    that pre-trained without labels the bundle holds the encoder, from which training with labels continues.
    """
    from fedmed.export.bundle import export_bundle, words_of

    made = export_bundle(
        run, out, model=model, site=site, site_run=site_run, unseen=unseen, words=words_of(word),
        classes=split_words(classes), onnx=onnx,
        verify=verify_on or verify, version=version, sign_with=sign, replace=replace,
    )  # fmt: skip
    show(made)


def show(made: "Exported") -> None:
    """Print what was made, and how to use it."""
    from fedmed.reports.words import size

    if made.warning:
        print(f"warning: {made.warning}", file=sys.stderr)
    model = f"the model after round {made.round + 1}" if made.round >= 0 else "the starting model: no round improved it"
    print(f"{made.out}: version {made.version}, {model}")
    for path in sorted((made.out / "models").iterdir()):
        print(f"  models/{path.name}  {size(path.stat().st_size)}")
    print(f"  configs/inference.yaml is complete; overlays left: {', '.join(made.overlays) or 'none'}")
    for check in made.checks:
        print(f"  checked: {check}")
    print(f"model card: {made.out / 'docs' / 'README.md'}")
    print(*made.next_steps, sep="\n")
