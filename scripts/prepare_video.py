#!/usr/bin/env python3
"""Turn a folder of recorded operations (videos or frames, with labels) into a site of a federation.

    scripts/prepare_video.py /data/lap --site site_a
    scripts/prepare_video.py /data/cholect50 --site cholect50 --each               # a site for each video
    scripts/prepare_video.py /data/cholec80 --site cho --split-by black-edge       # three: cho1, cho2, cho3

Writes datalist.json, <site>.yaml, prepare_report.csv and prepare_report.md into --out; of several sites into a folder
each below it. See docs/data.md.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path

from fedmed.data.prepare.clients import SiteRecordings, one_a_video, read_clients, require_tests, split_by_edge
from fedmed.data.prepare.console import add_options, parsed_options, print_site, progress, run_command
from fedmed.data.prepare.report import table
from fedmed.data.prepare.video_site import PLAIN, WantedVideos, find_recordings, layouts, prepare_video_site
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.errors import DataError
from fedmed.files import fedmed_home
from fedmed.plain_text import in_terminal, print_in_any_terminal


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
    several = parser.add_mutually_exclusive_group()
    several.add_argument("--each", action="store_true", help="make a site of each video, SITE_VIDEO")
    several.add_argument(
        "--split-by",
        choices=("black-edge",),
        help="make three sites: SITE1 of videos with large black edges left and right, SITE2 intermediate, SITE3 small",
    )
    several.add_argument(
        "--clients",
        type=Path,
        metavar="YAML",
        help="make a site of each client, SITE_CLIENT, with its lists; research/experiments/clients has those of "
        "Markert (2022)",
    )
    add(
        "--edges",
        type=float,
        nargs=2,
        metavar=("SMALL", "INTERMEDIATE"),
        help="largest shares of the width that are a small and an intermediate edge (default: thirds of the measured)",
    )
    add(
        "--blocks",
        type=float,
        nargs=2,
        metavar=("SECONDS", "GAP"),
        help="cut folders of single frames into blocks, in turn for training and testing, without the frames between",
    )
    add("--size", type=int, nargs=2, default=(224, 224), metavar=("H", "W"), help="of frames, to foretell their space")
    add("--rate", type=float, default=1.0, help="frames a second that are looked at and foretold (%(default)s)")
    options = parsed_options(parser, arguments)
    if options.edges and not options.split_by:
        parser.error("--edges are limits of --split-by black-edge; give both")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    return run_command("prepare_video", lambda: prepare(options))


def prepare(options: argparse.Namespace) -> None:
    """Prepare the site, or several, and print what was used and what was not."""
    wanted = WantedVideos(
        options.layout, options.phases, options.tools, tuple(options.leave_out), options.unlabelled,
        options.patient_pattern, FrameSettings(tuple(options.size), options.rate), options.blocks,
    )  # fmt: skip
    if not (options.each or options.split_by or options.clients):
        prepare_one(options, wanted, options.out, options.site)
        return
    made, parent = 0, options.out if options.out != fedmed_home() / "sites" / options.site else options.out.parent
    clients = clients_of(options, wanted, parent)
    for client in clients:
        try:
            prepare_one(options, wanted, parent / client.site, client.site, client)
            made += 1
        except DataError as error:
            print(f"site '{client.site}' is not made: {error}", file=sys.stderr)
    if not made or (made < len(clients) and not options.each):
        raise DataError(f"{options.folder}: {made} of {len(clients)} sites could be made")


def clients_of(options: argparse.Namespace, wanted: WantedVideos, parent: Path) -> list[SiteRecordings]:
    """Videos of each client, as the options say; measured edges are printed, and written below ``parent``."""
    recordings = find_recordings(options.folder, wanted)[2]
    if options.each:
        return one_a_video(options.site, recordings)
    if options.clients:
        return read_clients(options.clients, options.site, recordings)
    limits, track = options.edges, progress("Measuring black edges")
    clients, rows, said = split_by_edge(recordings, options.site, limits, options.workers, track)
    require_tests(clients, recordings, options.split)
    print(*map(in_terminal, said), sep="\n")
    parent.mkdir(parents=True, exist_ok=True)
    (parent / f"{options.site}_black_edges.csv").write_bytes(
        table(rows[0], (dict(zip(rows[0], row, strict=True)) for row in rows[1:]))
    )
    return clients


def prepare_one(
    options: argparse.Namespace, wanted: WantedVideos, out: Path, site: str, client: SiteRecordings | None = None
) -> None:
    """Prepare one site and print what was used and what was not."""
    prepared = prepare_video_site(
        options.folder, out, site, wanted, fractions=tuple(options.split), seed=options.seed,
        workers=options.workers, copy=options.copy, track=progress("Streaming videos"), client=client,
        own_patients=options.own_patients,
    )  # fmt: skip
    print_site(prepared, site)


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
