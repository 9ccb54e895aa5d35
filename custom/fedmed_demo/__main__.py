"""``fedmed prepare demo``: the synthetic hospitals, before the first job needs them."""

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from fedmed.commands.command_line import run_app
from fedmed.commands.options import command, group, split_words
from fedmed.errors import FedMedError
from fedmed_demo import KINDS, demo_site
from fedmed_demo.labelled_lists import labelled_list

app = group("The synthetic hospitals.")


@command(app, "demo")
def prepare(
    kind: Annotated[str, typer.Argument(metavar="[KIND]", help=f"One of {', '.join(sorted(KINDS))}.")] = "chest_ct",
    sites: Annotated[list[str], typer.Option(metavar="SITE,SITE", help="Only these. Default: all of the kind.")] = [],
    root: Annotated[
        Path | None, typer.Option(help="Where to put them. Default: $FEDMED_HOME, else ~/.cache/fedmed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed makes other patients.")] = 0,
    labelled: Annotated[
        bool,
        typer.Option("--labelled", help="Also datalist_labelled.json with every mask, for experiments (chest_ct)."),
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Sites at a time.")] = min(2, os.cpu_count() or 1),
) -> None:
    """Make a demo federation's images or videos before the first job needs them.

    Jobs make them on first use; this command makes all sites at once and prints where they are.
    """
    if kind not in KINDS:
        raise FedMedError(f"the kind '{kind}' is unknown; there are {', '.join(sorted(KINDS))}")
    began = time.perf_counter()
    chosen = split_words(sites) or sites_with_folders(kind, labelled)
    make = labelled_folder if labelled else demo_site
    with ProcessPoolExecutor(min(processes, len(chosen))) as pool:
        for site, made in [(site, pool.submit(make, kind, site, root, seed)) for site in chosen]:
            print(describe(site, made.result()), flush=True)
    print(f"{len(chosen)} site{'s' * (len(chosen) != 1)} ready in {time.perf_counter() - began:.1f} s")


def labelled_folder(kind: str, site: str, root: Path | None, seed: int) -> Path:
    """Folder of a site that has the list with every mask too."""
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
    sys.exit(run_app(app, "fedmed prepare demo"))
