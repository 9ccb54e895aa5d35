#!/usr/bin/env python3
"""Turn a folder of CT volumes (NIfTI, DICOM series) into a site of a federation.

    python scripts/prepare_ct.py /data/chest --out /data/site_a --site site_a --masks /data/chest_masks

Writes datalist.json, <site>.yaml, prepare_report.csv and prepare_report.md into --out. See docs/data.md.
"""

import argparse
import os
import sys
from pathlib import Path

from fedmed.data.prepare.console import print_summary, progress
from fedmed.data.prepare.site import prepare_site
from fedmed.errors import DataError


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", type=Path, help="folder of the volumes, searched at any depth")
    add("--out", type=Path, required=True, metavar="SITE_DIR", help="folder to write")
    add("--site", "--name", dest="site", required=True, help="the site's name in the federation")
    add("--masks", type=Path, help="folder of NIfTI masks named as their images")
    add("--mask-suffix", help="what a mask's name has after the case's name, for example _seg")
    add("--image-suffix", help="what an image's name has after the case's name, for example _0000")
    add("--role", choices=("labelled", "unlabelled"), help="default: labelled if masks are named")
    add("--split", type=float, nargs=3, default=(0.6, 0.2, 0.2), metavar=("TRAIN", "VAL", "TEST"))
    add(
        "--patient-pattern", metavar="REGEX", help=r"finds the patient in the relative path, for example '^(.*)_scan\d'"
    )
    add("--seed", type=int, default=0, help="of the split (default 0)")
    add("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes that read images")
    add("--copy", action="store_true", help="link or copy NIfTI files into SITE_DIR instead of pointing at them")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        prepared = prepare_site(
            options.folder,
            options.out,
            options.site,
            masks=options.masks,
            mask_suffix=options.mask_suffix,
            image_suffix=options.image_suffix,
            role=options.role,
            fractions=tuple(options.split),
            seed=options.seed,
            patient_pattern=options.patient_pattern,
            workers=options.workers,
            copy=options.copy,
            track=progress("Reading volumes"),
        )
    except DataError as error:
        print(f"prepare_ct: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("prepare_ct: interrupted; nothing was written", file=sys.stderr)
        return 130
    print_summary(prepared, options.site)
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # file names may hold what the terminal cannot show
    sys.exit(main())
