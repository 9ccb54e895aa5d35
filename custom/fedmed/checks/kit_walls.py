"""Whether a startup kit keeps the configurations of jobs from reading this machine."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmed.checks.site_findings import SiteFinding

# What a kit names first, as scripts/provision.sh writes it.
WALLS = {"json_only": "fedmed.flare.json_only.JsonOnly", "plain_jobs": "fedmed.flare.job_gate.PlainJobs"}


def check_walls(where: Path, resources: Mapping[str, Any]) -> Iterator[SiteFinding]:
    """Say so when a kit lacks them: kits that were made before FedMed had them do.

    They must come first, since NVFlare builds the parts of a kit in this order.

    Args:
        where: the kit's ``resources.json``, for the message.
        resources: its content.
    """
    first = resources.get("components", [])[: len(WALLS)]
    if [part.get("path") for part in first if not part.get("disabled")] == list(WALLS.values()):
        return
    parts = ", ".join(json.dumps({"id": id, "path": path, "args": {}}) for id, path in WALLS.items())
    text = f"{where}: the configuration of a job could read this machine's environment and files. Put {parts}"
    yield SiteFinding("connection", "jobs", f"{text} before all other 'components', and restart the site")
