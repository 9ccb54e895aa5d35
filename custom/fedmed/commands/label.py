"""``fedmed label``: a trained bundle at work in MONAI Label, and what readers saved there."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmed.commands.options import AS_IT_IS, command, group
from fedmed.errors import FedMedError
from fedmed.files import CHECKOUT, private_files
from fedmed.plain_text import in_markup

if TYPE_CHECKING:
    from fedmed.labelling.corrections import CorrectionResult
    from fedmed.settings.site import SiteConfig

app = group("Trained bundles in MONAI Label, and the labels that readers saved there.")


@command(app, settings=AS_IT_IS)
def serve(context: typer.Context) -> None:
    """Serve trained bundles in MONAI Label, for 3D Slicer, OHIF or any other client: scripts/label.sh."""
    script = CHECKOUT / "scripts" / "label.sh"
    if not script.is_file():
        raise FedMedError("MONAI Label's environment is made by scripts/label.sh of FedMed's repository; clone it")
    os.execv(script, [str(script), *context.args])


@command(app)
@private_files()
def use(
    site: Annotated[Path, typer.Argument(metavar="SITE_YAML", help="The site's settings.")],
    work: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that the label server served (it prints it).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show, but write nothing.")] = False,
) -> None:
    """Turn the masks that readers saved in the label server into training data.

      fedmed label use /data/site_b/site_b.yaml --dry-run
      fedmed label use /data/site_b/site_b.yaml

    Each mask that fits its image is written to DATA_ROOT/corrected_labels, and its image moves from 'unlabeled' to
    'training' in the site's datalist; the former datalist stays as datalist.json.before. Images of 'validation' and
    'testing' are never touched. Running it again changes nothing until a label is new or has been corrected again.

    Exit code: 0 done or nothing to do, 2 an error, or no label could be used.
    """
    from fedmed.labelling.correction_plan import REFUSED
    from fedmed.labelling.corrections import use_labels
    from fedmed.labelling.studies import read_site, read_work, work_folder

    settings = read_site(site)
    place = read_work(work or work_folder(site))
    result = use_labels(settings, place, dry_run=dry_run)
    if not result.outcomes:
        print(f"{place.folder} holds no final label yet; save one in 3D Slicer or OHIF (Submit Label) first.")
        return
    show(result, settings, dry_run)
    if all(outcome.done == REFUSED for outcome in result.outcomes):
        raise FedMedError("no label could be used; the reasons are in the table")


def show(result: "CorrectionResult", site: "SiteConfig", dry_run: bool) -> None:
    """Print what was done to each label, and what happens next."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "case", f"foreground, {result.unit}", "", "", title=in_markup(f"labels of {site.site}"), title_justify="left"
    )
    for outcome in result.outcomes:
        foreground = "" if outcome.foreground is None else f"{outcome.foreground:.2f}"
        table.add_row(in_markup(outcome.case), foreground, outcome.done, in_markup(outcome.note))
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    console.print(table)
    if dry_run:
        print("Nothing was changed: --dry-run.")
    elif not result.changed:
        print("Nothing was changed: no label is new.")
    print(next_step(result, f"{site.site} {'would have' if dry_run else 'has now'}"))


def next_step(result: "CorrectionResult", has: str) -> str:
    """Say in a sentence what the site has, and what its next rounds do with it."""
    words = {"image": "scans", "video": "videos"}
    has = f"{has} {result.labelled} labelled and {result.unlabelled} unlabelled {words[result.word]} for training"
    if not result.labelled:
        return f"{has}."
    if not result.unlabelled:
        return f"{has}; with the role 'supervised' its next rounds learn from them."
    return f"{has}; with the role 'unsupervised' its next rounds use both losses."
