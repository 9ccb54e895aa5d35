#!/usr/bin/env python3
"""Make the four lung-nodule sites (LIDC-IDRI crops, grouped by slice spacing).

    python scripts/prepare_lidc.py --out /data/lidc_sites
    FEDMED_SITE_CONFIGS=/data/lidc_sites/site_configs nvflare simulator jobs/...

The crops are looked for in $FEDMED_DATA/ct_lidc_nodules, or ../shared/data/ct_lidc_nodules next to the checkout.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedmed.data.prepare.console import progress
from fedmed.data.prepare.lidc import default_data, numbers, prepare_lidc
from fedmed.data.prepare.report import refusals
from fedmed.errors import DataError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder with 'image' and 'mask'")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the sites into")
    parser.add_argument("--seed", type=int, default=0, help="of the splits (default 0)")
    parser.add_argument("--workers", type=int, default=1, help="processes that read images")
    options = parser.parse_args(arguments)
    try:
        sites = prepare_lidc(options.data, options.out, options.seed, options.workers, progress("Reading crops"))
    except DataError as error:
        print(f"prepare_lidc: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("prepare_lidc: interrupted; nothing was written", file=sys.stderr)
        return 130
    head, *rows = numbers(sites)
    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(table)
    for line in (line for cases in sites.values() for line in refusals(cases)):
        console.print(f"  refused: {line}", soft_wrap=True, markup=False)
    console.print(f"Written: {options.out}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
