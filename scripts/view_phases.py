#!/usr/bin/env python3
"""Draw what a site kept when it tested a model of phases, and never sends: ribbons of its videos, and features.

    scripts/view_phases.py KIT/JOB --out pictures                     # at a site of a federation, its folder of the job
    scripts/view_phases.py runs/phases --site lap_bay --out pictures  # of a simulation

Writes ribbons.png, the best, the median and the worst video, and features.png, frames in two dimensions and two videos
frame against frame, as in a simulation's report. The pictures tell how long a patient's operation and its phases took:
treat them as you treat the videos.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed.files import private_files


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when there is nothing to draw, or a file is damaged or cannot be written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a site's folder of a job, or, with --site, a run")
    parser.add_argument("--site", help="name of a site of a simulation")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path(), help="where to write (default: here)")
    parser.add_argument("--title", help="default: the site's name, or the folder's")
    parser.add_argument("--dpi", type=int, choices=range(20, 601), metavar="20...600", default=200, help="default 200")
    options = parser.parse_args(arguments)
    # Here and not above: they take seconds to load, for which --help need not wait.
    from fedmed.reports.site_pictures import phase_pictures, tested_site, write_pictures

    try:
        folder = options.folder.expanduser().absolute()
        site = tested_site(folder, options.site, options.title or options.site or folder.name)
        written = write_pictures(lambda: phase_pictures(site), options.out, options.dpi)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(*written, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
