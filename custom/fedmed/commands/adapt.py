"""``fedmed adapt``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmed.commands.options import Device, Replace, Trust
from fedmed.errors import FedMedError
from fedmed.files import private_files
from fedmed.plain_text import in_terminal

if TYPE_CHECKING:
    from fedmed.adapting.bundle import Made


class AdaptationName(StrEnum):
    """Names as of overlays; ``none``: leave the images as they are."""

    STATISTICS = "statistics"
    INTENSITY = "intensity"
    COLOUR = "colour"
    NONE = "none"


@private_files()
def adapt(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder that 'fedmed export' wrote.")],
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help="Folder of this hospital's images, or a video.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The adapted bundle's folder: models/own_classification.")],
    adaptation: Annotated[
        list[AdaptationName],
        typer.Option(help="Make these and no others, repeatable; by default each decides by the images."),
    ] = [],
    few: Annotated[
        bool, typer.Option("--few", help="Also with fewer than 20 images, 5 scans, 2 videos or 40 frames.")
    ] = False,
    device: Device = None,
    trust: Trust = [],
    replace: Replace = False,
) -> None:
    """Adapt an exported bundle to a hospital's own images, which nobody has labelled; nothing leaves this machine.

      fedmed adapt models/phases_classification /data/videos models/own_phases_classification
      fedmed adapt BUNDLE IMAGES OUT --adaptation statistics    # whatever speaks against it

    IMAGES is a folder of what the bundle's inference reads, of several patients. OUT is a whole bundle: its card says
    what was changed, docs/page.html shows it before and after, with images of this hospital. Nobody knows without
    labels whether it is better: have some images marked, and compare both, before you use it.
    """
    from fedmed.adapting.bundle import adapt_bundle

    if AdaptationName.NONE in adaptation and len(set(adaptation)) > 1:
        raise FedMedError("--adaptation none goes with no other")
    show(
        adapt_bundle(
            bundle,
            images,
            out,
            adaptations=[one.value for one in adaptation],
            trusted=trust,
            few=few,
            device=device,
            replace=replace,
        )
    )


def show(made: "Made") -> None:
    """Print what was changed, and why not."""
    print(f"{made.out}: version {made.version}, from {made.amount}")
    for fault in made.adapted.images.faults:
        print(f"  left out: {in_terminal(fault)}")
    for one in made.adapted.decisions:
        print(f"  {one.name}: {'made' if one.made else 'not made'}: {in_terminal(one.why)}")
    print(f"before and after: {made.out / 'docs' / 'page.html'}")
    if not made.adapted.made:
        print("Nothing was changed: OUT is a copy of the bundle. The lines above say what each adaptation would need.")
    else:
        print("Whether it is better nobody knows without labels: have some images marked, and compare both bundles.")
