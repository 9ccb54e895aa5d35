"""How the sites trained, from the job's own files where they lie beside the run."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CLIENT = "config_fed_client.json"


def methods(folder: Path, records: Path) -> dict[str, dict[str, Any]]:
    """Role -> overlays and overrides of its sites; empty where no job file is left.

    Args:
        folder: the run, as given: a simulator keeps each site's configuration in it.
        records: the folder of ``run.json``: a downloaded result has the job two levels above.
    """
    found = {}
    for path in _client_files(folder, records):
        args = _arguments(path)
        if args.get("role"):
            kept = {"overlays": list(args.get("overlays") or ()), "overrides": dict(args.get("overrides") or {})}
            found[str(args["role"])] = kept
    return dict(sorted(found.items()))


def _client_files(folder: Path, records: Path) -> Iterator[Path]:
    yield from sorted(folder.glob(f"*/simulate_job/app_*/config/{CLIENT}"))
    for place in (records.parent.parent / "job", folder / "job"):
        yield from sorted(place.glob(f"**/app_*/config/{CLIENT}"))


def _arguments(path: Path) -> Mapping[str, Any]:
    """The executor's arguments; a file that cannot be read tells nothing, and the export does not depend on it."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["executors"]
        return next((e["executor"]["args"] for e in entries if "train" in e["tasks"]), {})
    except (OSError, ValueError, KeyError, TypeError):
        return {}
