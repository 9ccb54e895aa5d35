#!/usr/bin/env python3
"""Adapt an exported bundle to a hospital's own images, which nobody has labelled; nothing leaves this machine.

    scripts/adapt_bundle.py models/phases_classification /data/videos models/own_phases_classification
    scripts/adapt_bundle.py BUNDLE IMAGES OUT --adaptation statistics    # whatever speaks against it

IMAGES is a folder of what the bundle's inference reads, of several patients. OUT is a whole bundle: its card says what
was changed, docs/page.html shows it before and after, with images of this hospital. Nobody knows without labels whether
it is better: have some images marked, and compare both, before you use it.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedmed.errors import FedMedError
from fedmed.files import private_files
from fedmed.plain_text import in_terminal, print_in_any_terminal

if TYPE_CHECKING:  # elsewhere where it is used: it takes seconds to load, for which --help need not wait
    from fedmed.adapting.bundle import Made

CHOICES = ("statistics", "intensity", "colour", "none")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", type=Path, help="folder that scripts/export_bundle.py wrote")
    add("images", metavar="IMAGES", type=Path, help="folder of this hospital's images, or a video")
    add("out", metavar="OUT", type=Path, help="the adapted bundle's folder, such as models/own_classification")
    add(
        "--adaptation",
        metavar="NAME",
        action="append",
        choices=CHOICES,
        default=[],
        help=f"{', '.join(CHOICES)} (repeatable): make these and no others; by default each decides by the images",
    )
    add("--few", action="store_true", help="also with fewer than 20 images, 5 scans, 2 videos or 40 frames")
    add("--device", metavar="NAME", help="cpu, cuda, cuda:1; default: a GPU if there is one")
    add("--trust", metavar="DIGEST", action="append", default=[], help="let the bundle of this digest run its own code")
    add("--replace", action="store_true", help="replace an exported bundle at OUT")
    options = parser.parse_args(argv)
    if "none" in options.adaptation and len(set(options.adaptation)) > 1:
        parser.error("--adaptation none goes with no other")
    return options


def report(made: "Made") -> None:
    """Print what was changed, and why not."""
    print(f"{made.out}: version {made.version}, from {made.amount}")
    for fault in made.adapted.images.faults:
        print(f"  left out: {in_terminal(fault)}")
    for one in made.adapted.decisions:
        print(f"  {one.name}: {'made' if one.made else 'not made'}: {in_terminal(one.why)}")
    print(f"before and after: {made.out / 'docs' / 'page.html'}")
    if made.adapted.made:
        print("Whether it is better nobody knows without labels: have some images marked, and compare both bundles.")


@private_files()
def main(argv: list[str] | None = None) -> int:
    """Return 0, or 2 when the bundle, the images or OUT cannot be used."""
    options = parse_arguments(argv)
    from fedmed.adapting.bundle import adapt_bundle

    wanted = {key: getattr(options, key) for key in ("few", "device", "replace")}
    try:
        made = adapt_bundle(
            options.bundle, options.images, options.out, adaptations=options.adaptation, trusted=options.trust, **wanted
        )
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    report(made)
    return 0


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
