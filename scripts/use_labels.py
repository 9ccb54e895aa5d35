#!/usr/bin/env python3
"""Turn the masks that readers saved in the label server into training data.

    scripts/use_labels.py /data/site_b/site_b.yaml --dry-run
    scripts/use_labels.py /data/site_b/site_b.yaml

Each mask that fits its image is written to DATA_ROOT/corrected_labels, and its image moves from 'unlabeled' to
'training' in the site's datalist; the former datalist stays as datalist.json.before. Images of 'validation' and
'testing' are never touched. Running it again changes nothing until a label is new or has been corrected again.
Exit code: 0 done or nothing to do, 2 an error, or no label could be used.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fedmed.errors import FedMedError
from fedmed.files import private_files
from fedmed.plain_text import in_markup

if TYPE_CHECKING:  # elsewhere where they are used: they take seconds to load, for which --help need not wait
    from fedmed.labelling.corrections import CorrectionResult
    from fedmed.settings.site import SiteConfig


def show(result: "CorrectionResult", site: "SiteConfig", dry_run: bool) -> None:
    """Print what was done to each label, and what happens next."""
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


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when nothing could be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", metavar="SITE_YAML", type=Path, help="the site's settings")
    parser.add_argument("--work", metavar="DIR", type=Path, help="folder that the label server served (it prints it)")
    parser.add_argument("--dry-run", action="store_true", help="check and show, but write nothing")
    options = parser.parse_args(arguments)
    from fedmed.labelling.correction_plan import REFUSED
    from fedmed.labelling.corrections import use_labels
    from fedmed.labelling.studies import read_site, read_work, work_folder

    try:
        site = read_site(options.site)
        work = read_work(options.work or work_folder(options.site))
        result = use_labels(site, work, dry_run=options.dry_run)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not result.outcomes:
        print(f"{work.folder} holds no final label yet; save one in 3D Slicer or OHIF (Submit Label) first.")
        return 0
    show(result, site, options.dry_run)
    refused = [outcome for outcome in result.outcomes if outcome.done == REFUSED]
    if len(refused) == len(result.outcomes):
        print("error: no label could be used; the reasons are in the table", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
