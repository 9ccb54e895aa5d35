#!/usr/bin/env python3
"""Make the four lung-nodule sites (LIDC-IDRI crops, grouped by slice spacing).

    python scripts/prepare_lidc.py --out /data/lidc_sites
    FEDMED_SITE_CONFIGS=/data/lidc_sites/site_configs nvflare simulator jobs/...

The crops are looked for in $FEDMED_HOME/data/ct_lidc_nodules, or ../shared/data/ct_lidc_nodules next to the checkout.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path

from rich.console import Console

from fedmed.data.prepare.console import print_table, progress, run_command
from fedmed.data.prepare.report import refusals, shortened
from fedmed.plain_text import in_markup
from research.runner.lidc import default_data, numbers, prepare_lidc


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder with 'image' and 'mask'")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the sites into")
    parser.add_argument("--seed", type=int, default=0, help="of the splits (default 0)")
    parser.add_argument("--workers", type=int, default=1, help="processes that read images")
    options = parser.parse_args(arguments)
    return run_command("prepare_lidc", lambda: prepare(options))


def prepare(options: argparse.Namespace) -> None:
    """Prepare the sites and print what they have and what was refused."""
    sites = prepare_lidc(options.data, options.out, options.seed, options.workers, progress("Reading crops"))
    console = Console(highlight=False)
    print_table(console, numbers(sites))
    for line in (line for cases in sites.values() for line in shortened(refusals(cases), 20)):
        console.print(f"  refused: {in_markup(line)}", soft_wrap=True)
    console.print(f"Written: {options.out}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
