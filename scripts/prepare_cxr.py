#!/usr/bin/env python3
"""Turn a folder of chest X-rays (PNG, JPEG, DICOM) into a site of a federation.

    python scripts/prepare_cxr.py /data/xrays --out /data/site_a --site site_a --table /data/xrays/labels.csv
    python scripts/prepare_cxr.py /data/xrays --out /data/site_a --site site_a --unlabelled

The table is a CSV with the columns file (relative to the folder), label and patient. Images without a label go to the
list "unlabeled". Writes datalist.json, <site>.yaml, prepare_report.csv and prepare_report.md into --out. See
docs/data.md.
"""

import argparse
import os
import sys
from pathlib import Path

from fedmed.data.prepare.console import print_site, progress
from fedmed.data.prepare.xray_site import Labels, PreparedXrays, prepare_xray_site
from fedmed.data.prepare.xray_table import Columns
from fedmed.data.prepare.xray_write import class_table, xray_sections
from fedmed.errors import DataError


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", type=Path, help="folder of the images, searched at any depth")
    add("--out", type=Path, required=True, metavar="SITE_DIR", help="folder to write")
    add("--site", "--name", dest="site", required=True, help="the site's name in the federation")
    add("--table", type=Path, help="CSV of files, labels and patients (default: <folder>/labels.csv if there is one)")
    for what in ("file", "label", "patient"):
        add(f"--{what}-column", metavar="NAME", help=f"the table's column of the {what} (default: {what})")
    add("--unlabelled", action="store_true", help="put all images into the list 'unlabeled', whatever their labels")
    add("--classes", nargs="+", default=(), metavar="CLASS", help="refuse images with any other label")
    add("--merge", action="append", default=[], metavar="NEW=OLD,OLD", help="give several labels one name; repeatable")
    add("--split", type=float, nargs=3, default=(0.6, 0.2, 0.2), metavar=("TRAIN", "VAL", "TEST"))
    add("--patient-pattern", metavar="REGEX", help=r"finds the patient in the relative path, for example '^(\d+)_'")
    add("--seed", type=int, default=0, help="of the split (default 0)")
    add("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes that read images")
    add("--copy", action="store_true", help="link or copy the images into SITE_DIR instead of pointing at them")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        prepared = prepare_xray_site(
            options.folder,
            options.out,
            options.site,
            labels=labels_of(options),
            fractions=tuple(options.split),
            seed=options.seed,
            patient_pattern=options.patient_pattern,
            workers=options.workers,
            copy=options.copy,
            track=progress("Reading images"),
        )
    except DataError as error:
        print(f"prepare_cxr: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("prepare_cxr: interrupted; nothing was written", file=sys.stderr)
        return 130
    show(prepared, options.site)
    return 0


def labels_of(options: argparse.Namespace) -> Labels:
    """Where labels come from; a labels.csv in the folder is the default table."""
    default = options.folder / "labels.csv"
    table = options.table or (default if default.is_file() else None)
    given = {what: getattr(options, f"{what}_column") for what in ("file", "label", "patient")}
    given = {what: name for what, name in given.items() if name}
    if given and table is None:
        raise DataError("columns are named, but no table is given; give --table")
    return Labels(table, Columns(**given), tuple(given), options.merge, options.classes, options.unlabelled)


def show(prepared: PreparedXrays, site: str) -> None:
    """Print what was used and what was not."""
    cases = prepared.cases
    title = f"site '{site}': {sum(bool(case.lists) for case in cases)} of {len(cases)} images"
    lists = xray_sections(cases, prepared.missing, limit=20)
    print_site(title, class_table(cases, prepared.classes), lists, prepared.data_root, prepared.out, site)


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # file names may hold what the terminal cannot show
    sys.exit(main())
