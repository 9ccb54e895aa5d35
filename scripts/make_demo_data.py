#!/usr/bin/env python3
"""Make the demo federation's images or videos before the first job needs them.

Jobs make them on first use; this command makes all sites at once, two at a time, and prints where they are.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed.reports.words import count
from fedmed_demo import KINDS, demo_site
from fedmed_demo.labelled_lists import labelled_list


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=sorted(KINDS), help="which demo federation (default: chest_ct)")
    parser.add_argument("--kind", dest="kind_option", choices=sorted(KINDS), help="the same, as an option")
    parser.add_argument("--sites", nargs="+", metavar="SITE", help="only these sites (default: all of the kind)")
    parser.add_argument("--root", type=Path, help="where to put them (default: $FEDMED_HOME, else ~/.cache/fedmed)")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other patients (default: 0)")
    parser.add_argument(
        "--labelled",
        action="store_true",
        help="also datalist_labelled.json with every mask, for experiments (chest_ct)",
    )
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="sites at a time")
    options = parser.parse_args(arguments)
    kind = options.kind or options.kind_option or "chest_ct"
    began = time.perf_counter()
    sites = options.sites or sites_with_folders(kind, options.labelled)
    with ProcessPoolExecutor(max(1, min(options.processes, len(sites)))) as pool:
        make = labelled_folder if options.labelled else demo_site
        made = [(site, pool.submit(make, kind, site, options.root, options.seed)) for site in sites]
        try:
            for site, job in made:
                print(describe(site, job.result()), flush=True)
        except FedMedError as error:
            print(f"make_demo_data: {error}", file=sys.stderr)
            return 1
    print(f"{count(len(sites), 'site')} ready in {time.perf_counter() - began:.1f} s")
    return 0


def labelled_folder(kind: str, site: str, root: Path | None, seed: int) -> Path:
    return labelled_list(kind, site, root, seed).parent


def sites_with_folders(kind: str, labelled: bool = False) -> list[str]:
    """The sites of a kind that have their own folder; the largest first, so that the processes end together."""
    profiles = {name: profile for name, profile in KINDS[kind].items() if profile.name == name}
    if labelled:  # those that can have a list with every mask; if there is none, the first says so
        profiles = {name: profile for name, profile in profiles.items() if getattr(profile, "further", {})} or profiles
    return sorted(profiles, key=lambda name: -sum(profiles[name].counts.values()))


def describe(site: str, folder: Path) -> str:
    """One line: the site, its lists, its size on disk and where it is."""
    lists = json.loads((folder / "datalist.json").read_text())
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    counts = ", ".join(f"{len(entries)} {name}" for name, entries in lists.items())
    return f"{site:<11} {counts:<40} {size:6.1f} MB  {folder}"


if __name__ == "__main__":
    sys.exit(main())
