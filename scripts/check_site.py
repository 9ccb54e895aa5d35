#!/usr/bin/env python3
"""Check a site before it joins: its images, its machine, its connection. Run at the hospital; nothing leaves it.

    python scripts/check_site.py /data/site_a/site_a.yaml --job jobs/covid_fssl --role supervised
    python scripts/check_site.py --kit /opt/fedmed/hospital_a --job study.job

Prints what is wrong and what to do, writes a list of all entries that stays here (--csv), and a page for the study
lead (--out) that contains no patient information. The site's cache is left alone. NVFlare's preflight check starts the
site for five seconds and registers it with the server: run this before the first job is submitted.

Exit code: 0 fine, or notes only; 1 problems that must be solved first; 2 it could not be checked; 130 stopped.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import logging
import os
import sys
from pathlib import Path

from fedmed.files import private_files
from fedmed.interrupts import end_workers, endings_as_ctrl_c
from fedmed.plain_text import print_in_any_terminal


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("site", nargs="?", help="the site's YAML, or its name in the federation (default: the YAML in the kit)")
    add("--job", help="job folder, a study, or the name of a bundle: measure this site's work in it")
    add("--role", choices=("supervised", "unsupervised", "evaluate"), help="when the job does not name the site")
    add("--overlay", action="append", default=[], help="of a bundle named by --job (repeatable)")
    add("--kit", type=Path, help="startup kit of the site: check the connection")
    add(
        "--out",
        type=Path,
        metavar="PAGE",
        help="for the study lead (default: $FEDMED_HOME/to_send/check_<site>.html)",
    )
    add("--csv", type=Path, help="list of all entries, which stays here (default: $FEDMED_HOME/checks/<site>.csv)")
    add("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes that read images (%(default)s)")
    add("--steps", type=int, default=3, help="training steps to measure, after one to warm up (default %(default)s)")
    add("--timeout", type=float, default=30, metavar="MINUTES", help="for the measurement (default %(default)s)")
    add(
        "--skip",
        default="",
        metavar="PART,…",
        help="leave out: data, training, disk, device, connection, preflight (NVFlare's part of the connection), "
        "scoring (of a validation case)",
    )
    options = parser.parse_args(arguments)
    if options.workers < 1 or options.steps < 1 or options.timeout <= 0:
        parser.error("--workers, --steps and --timeout must be positive")
    return options


@endings_as_ctrl_c()
@private_files()
def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    # Here and not above: processes that read images start from this file too, and do not need these modules.
    from fedmed.checks.hospital_report import Screen, default_csv, default_page, print_checked, write_csv, write_page
    from fedmed.checks.site_check import Options, check_site
    from fedmed.errors import FedMedError

    logging.getLogger("fedmed").setLevel(logging.ERROR)  # what training logs is printed below, once
    wanted = Options(
        job=options.job,
        role=options.role,
        overlays=options.overlay,
        kit=options.kit,
        workers=options.workers,
        steps=options.steps,
        timeout=60 * options.timeout,
        skip=[part for part in options.skip.split(",") if part],
    )
    try:
        checked = check_site(options.site, wanted, Screen())
        csv = write_csv(checked, options.csv or default_csv(checked.site.site)) if checked.counts else None
        page = write_page(checked, (options.out or default_page(checked.site.site)).absolute())
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        end_workers()
        print("check_site: interrupted; nothing was written", file=sys.stderr)
        return 130
    print_checked(checked, csv, page)
    return 0 if checked.ready else 1


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
