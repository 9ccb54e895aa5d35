#!/usr/bin/env python3
"""Turn a folder of chest X-rays (PNG, JPEG, DICOM) into a site of a federation.

    scripts/prepare_cxr.py /data/xrays --site site_a --table /data/xrays/labels.csv
    scripts/prepare_cxr.py /data/xrays --site site_a --unlabelled

The table is a CSV with the columns file (relative to the folder), label, patient and view. Images without a label go to
the list "unlabeled"; images from the side, and of other parts than the chest, are refused. Writes datalist.json,
<site>.yaml, prepare_report.csv and prepare_report.md into --out. See docs/data.md.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path

from fedmed.data.prepare.console import add_options, parsed_options, print_site, progress, run_command
from fedmed.data.prepare.xray_labels import COLUMNS, UNCERTAIN
from fedmed.data.prepare.xray_site import Labels, prepare_xray_site
from fedmed.data.prepare.xray_view import parse_wanted
from fedmed.errors import DataError
from fedmed.plain_text import print_in_any_terminal


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add_options(parser, "images", r"^(\d+)_")
    add("--table", type=Path, help="CSV, see above (default: <folder>/labels.csv if there is one)")
    for what in COLUMNS:
        add(f"--{what}-column", metavar="NAME", help=f"the table's column of the {what} (default: {what})")
    add("--unlabelled", action="store_true", help="put all images into the list 'unlabeled', whatever their labels")
    add("--classes", nargs="+", default=(), metavar="CLASS", help="refuse images with any other label")
    add("--merge", action="append", default=[], metavar="NEW=OLD,OLD", help="give several labels one name; repeatable")
    add("--separator", default="", metavar="MARK", help="what divides several findings in one cell, such as '|'")
    add("--uncertain", choices=UNCERTAIN, default="", help="what becomes of -1 in a table of 1, 0 and -1 (CheXpert)")
    add("--view", metavar="VIEW,VIEW", help="take these views only, for example PA,AP or PA,AP,unknown; any takes all")
    add("--body-part", metavar="PART,PART", help="take these body parts, for example HAND; any takes all")
    return parsed_options(parser, arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    return run_command("prepare_cxr", lambda: prepare(options))


def prepare(options: argparse.Namespace) -> None:
    """Prepare the site and print what was used and what was not."""
    prepared = prepare_xray_site(
        options.folder,
        options.out,
        options.site,
        labels=labels_of(options),
        wanted=parse_wanted(options.view, options.body_part),
        fractions=tuple(options.split),
        seed=options.seed,
        patient_pattern=options.patient_pattern,
        workers=options.workers,
        copy=options.copy,
        own_patients=options.own_patients,
        track=progress("Reading images"),
    )
    print_site(prepared, options.site)


def labels_of(options: argparse.Namespace) -> Labels:
    """Source of the labels; a labels.csv in the folder is the default table."""
    default = options.folder / "labels.csv"
    table = options.table or (default if default.is_file() else None)
    named = {what: getattr(options, f"{what}_column") for what in COLUMNS}
    columns = {what: name for what, name in named.items() if name}
    if columns and table is None:
        raise DataError("columns are named, but no table is given; give --table")
    how = (options.separator, options.uncertain, options.unlabelled)
    return Labels(table, columns, options.merge, options.classes, *how)


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
