"""When a label was drawn, and which model's prediction the reader had before them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmed.labelling.ranking import STORED

DATASTORE = "datastore_v2.json"  # MONAI Label's own notes


def read_notes(folder: Path) -> dict[str, Any]:
    """What MONAI Label knows of each image of a work folder; empty where there are no readable notes."""
    try:
        notes = json.loads((folder / DATASTORE).read_text(encoding="utf-8"))["objects"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return notes if isinstance(notes, dict) else {}


def provenance(notes: Mapping[str, Any], image: str, label: Path) -> dict[str, str]:
    """Return ``drawn`` (ISO time, UTC) and ``model`` of a label.

    The model is what the client named when it saved the label; else the models that the server served at that time;
    else the one by whose score the image was chosen; else ``unknown``.
    """
    info = _info(notes, image, "labels", "final")
    scores, served = _mapping(_info(notes, image, "image").get(STORED)), _mapping(info.get("served"))
    chosen = {entry["model"] for entry in scores.values() if "model" in entry}
    serving = {f"{name} {version}".strip() for name, version in served.items()}
    model = str(info.get("model") or ", ".join(sorted(serving or chosen)) or "unknown")
    stamp = ts if isinstance(ts := info.get("ts"), int) else label.stat().st_mtime
    return {"drawn": datetime.fromtimestamp(stamp, UTC).isoformat(timespec="seconds"), "model": model}


def _info(notes: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    value: Any = notes
    for key in (*path, "info"):
        value = _mapping(value).get(key)
    return _mapping(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
