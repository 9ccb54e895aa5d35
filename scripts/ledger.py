#!/usr/bin/env python3
"""Show what has left a site in a job, or what would leave it. For the hospital; nothing of it is sent.

    python scripts/ledger.py /opt/fedmed/hospital_a/<job id>
    python scripts/ledger.py --dry-run hospital_a.yaml --job jobs/covid_fssl --out page.html

The dry run opens no image: it builds the job's network and asks the site's own limits.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import logging
import sys
from pathlib import Path

from rich.console import Console

from fedmed.errors import FedMedError
from fedmed.files import private_files
from fedmed.plain_text import print_in_any_terminal


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("run", nargs="?", type=Path, metavar="SITE_RUN", help="the site's own folder of a job, or its ledger.jsonl")
    add("--dry-run", type=Path, metavar="SITE_YAML", help="what this site would send")
    add("--job", type=Path, help="job folder, or study, of the dry run")
    add("--site", help="name of the site in the job (default: 'site' in the YAML, or the name of the file)")
    add("--out", type=Path, metavar="PAGE", help="also write a page (HTML)")
    options = parser.parse_args(arguments)
    if (options.run is None) == (options.dry_run is None):
        parser.error("give either SITE_RUN or --dry-run SITE_YAML")
    if (options.job is None) != (options.dry_run is None):
        parser.error("--dry-run and --job belong together")
    return options


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when there is nothing to show."""
    options = parse(arguments)
    from fedmed.privacy.limits import read_ledger
    from fedmed.reports.ledger_page import ledger_sheet
    from fedmed.reports.sheet import show, write_html

    logging.getLogger("fedmed").setLevel(logging.ERROR)
    try:
        if options.dry_run:
            from fedmed.privacy.disclosure_preview import (
                disclosure_preview,
                forecast,  # imports torch and MONAI
            )
            from fedmed.settings.site import load_file

            sheet = disclosure_preview(forecast(options.job, load_file(options.dry_run, options.site)))
        else:
            sheet = ledger_sheet(read_ledger(options.run))
        page = write_html(sheet, options.out.absolute()) if options.out else None
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    show(sheet, Console())
    if page:
        print(f"page: {page}")
    return 0


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
