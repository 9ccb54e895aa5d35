#!/usr/bin/env python3
"""Turn a folder of CT volumes (NIfTI, DICOM series) into a site of a federation.

    scripts/prepare_ct.py /data/chest --site site_a --masks /data/chest_masks

Writes datalist.json, <site>.yaml, prepare_report.csv and prepare_report.md into --out. See docs/data.md.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path
from typing import Any

from fedmed.data.prepare.console import add_options, parsed_options, print_site, progress, run_command
from fedmed.data.prepare.ct_site import prepare_site
from fedmed.data.prepare.volume_faults import Foreground, parse_values
from fedmed.plain_text import print_in_any_terminal


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add_options(parser, "volumes", r"^(.*)_scan\d")
    add("--masks", type=Path, help="folder of NIfTI masks named as their images")
    add("--mask-suffix", help="what a mask's name has after the case's name, for example _seg")
    add("--image-suffix", help="what an image's name has after the case's name, for example _0000")
    add("--mask-value", metavar="N,N", help="values of a mask that are foreground, for example 255; others count as 0")
    add("--mask-threshold", type=float, metavar="T", help="values above T are foreground, for masks of probabilities")
    add("--role", choices=("labelled", "unlabelled"), help="default: labelled if masks are named")
    return parsed_options(parser, arguments)


def main(arguments: list[str] | None = None) -> int:
    options = vars(parse(arguments))
    return run_command("prepare_ct", lambda: prepare(options))


def prepare(options: dict[str, Any]) -> None:
    """Prepare the site and print what was used and what was not."""
    options["fractions"] = tuple(options.pop("split"))
    options["foreground"] = Foreground(parse_values(options.pop("mask_value")), options.pop("mask_threshold"))
    print_site(prepare_site(**options, track=progress("Reading volumes")), options["site"])


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
