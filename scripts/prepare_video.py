#!/usr/bin/env python3
"""Turn a folder of recorded operations (videos or frames, with labels) into a site of a federation.

    scripts/prepare_video.py /data/lap --site site_a
    scripts/prepare_video.py /data/cholect50 --site cholect50 --each     # a site for each video

Writes datalist.json, <site>.yaml, prepare_report.csv and prepare_report.md into --out. See docs/data.md.
"""

import argparse
import re
import sys
from pathlib import Path

from fedmed.data.prepare.console import add_options, parsed_options, print_site, progress, run_command
from fedmed.data.prepare.video_site import PLAIN, Wanted, find_recordings, layouts, prepare_video_site
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.errors import DataError
from fedmed.files import fedmed_home


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = "\n".join(f"  {name:<12} {layout.about}" for name, layout in layouts().items())
    parser.epilog = f"layouts (the one that the folder obviously has, else {PLAIN}):\n{known}"
    add = parser.add_argument
    add_options(parser, "videos", r"^(.*)_part\d")
    add("--layout", choices=tuple(layouts()), help="how the folder is laid out, see below")
    add("--phases", nargs="+", metavar="NAME", help="refuse tables with any other phase")
    add("--tools", nargs="+", metavar="NAME", help="refuse tables with other tools than these")
    add("--leave-out", action="append", default=[], metavar="PHASE", help="leave out its frames (folders of frames)")
    add("--unlabelled", action="store_true", help="put all videos into the list 'unlabeled', whatever their labels")
    add("--each", action="store_true", help="make a site of each video, SITE_VIDEO, in a folder of its own below --out")
    add("--size", type=int, nargs=2, default=(224, 224), metavar=("H", "W"), help="of frames, to foretell their space")
    add("--rate", type=float, default=1.0, help="frames a second that are looked at and foretold (%(default)s)")
    return parsed_options(parser, arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    return run_command("prepare_video", lambda: prepare(options))


def prepare(options: argparse.Namespace) -> None:
    """Prepare the site, or one a video, and print what was used and what was not."""
    wanted = Wanted(
        options.layout, options.phases, options.tools, tuple(options.leave_out), options.unlabelled,
        options.patient_pattern, FrameSettings(tuple(options.size), options.rate),
    )  # fmt: skip
    if not options.each:
        prepare_one(options, wanted, options.out, options.site)
        return
    made, parent = 0, options.out if options.out != fedmed_home() / "sites" / options.site else options.out.parent
    for recording in find_recordings(options.folder, wanted)[2]:
        name = f"{options.site}_{re.sub(r'[^a-z0-9]+', '_', recording.stem.lower())}"
        try:
            prepare_one(options, wanted, parent / name, name, recording.case)
            made += 1
        except DataError as error:
            print(f"site '{name}' is not made: {error}", file=sys.stderr)
    if not made:
        raise DataError(f"{options.folder}: no site could be made")


def prepare_one(options: argparse.Namespace, wanted: Wanted, out: Path, site: str, only: str | None = None) -> None:
    """Prepare one site and print what was used and what was not."""
    prepared = prepare_video_site(
        options.folder, out, site, wanted, fractions=tuple(options.split), seed=options.seed,
        workers=options.workers, copy=options.copy, track=progress("Streaming videos"), only=only,
    )  # fmt: skip
    print_site(prepared, site)


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # file names may hold what the terminal cannot show
    sys.exit(main())
