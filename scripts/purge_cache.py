#!/usr/bin/env python3
"""Delete the preprocessed cases and videos that FedMed keeps on disk, and nothing else."""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
from pathlib import Path

from fedmed.files import CACHE_FOLDER, default_cache_dir, purge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "cache_dir",
        nargs="*",
        type=Path,
        help=f"cache_dir of a site's YAML; its subfolder '{CACHE_FOLDER}' is emptied (default: {default_cache_dir()})",
    )
    for folder in parser.parse_args().cache_dir or [Path(default_cache_dir())]:
        print(f"{folder}: {purge(folder)} files deleted")


if __name__ == "__main__":
    main()
