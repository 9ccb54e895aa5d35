#!/usr/bin/env python3
"""Draw the videos of several sites side by side: frames, mean image, colours, and how often tools are seen.

    scripts/view_clients.py lap_hei1 lap_hei2 lap_cho1 lap_cho2 lap_cho3 --out clients.png
    scripts/view_clients.py /data/cho/cho1/cho1.yaml /data/cho/cho2/cho2.yaml --list testing --out clients.png

Frames show patients, and before the camera is inside perhaps faces and names: treat the sheet as you treat the videos.
The width of the black edge is that of the dark columns left and right, the median of the frames looked at.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed.files import private_files

LISTS = ("training", "validation", "testing")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("sites", nargs="+", metavar="SITE", help="YAML of a site, or its name in the federation")
    add("--list", choices=LISTS, default="training", help="whose videos (default %(default)s)")
    add("--frames", type=int, choices=range(1, 9), metavar="1...8", default=4, help="of each site (default 4)")
    add("--out", type=Path, metavar="PNG", required=True, help="the sheet")
    add("--dpi", type=int, choices=range(20, 601), metavar="20...600", default=110, help="default 110")
    return parser.parse_args(arguments)


def draw(options: argparse.Namespace) -> None:
    """Write the sheet."""
    from fedmed.reports.client_sheet import client_sheet, look_at
    from fedmed.reports.plots import png, style
    from fedmed.settings.site import load_named

    looks = [look_at(load_named(site), options.list, options.frames) for site in options.sites]
    with style():
        sheet = png(client_sheet(looks), dots=options.dpi)
    try:
        options.out.write_bytes(sheet)
    except OSError as error:
        raise FedMedError(f"{options.out} cannot be written ({error}); choose another --out") from error


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when a site or a video cannot be read, or the file not be written."""
    options = parse(arguments)
    try:
        draw(options)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
