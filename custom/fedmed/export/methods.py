"""How the sites trained, from the job's own files where they lie beside the run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmed.errors import FedMedError
from fedmed.jobs.job import STUDY
from fedmed.jobs.job_folder import read_app
from fedmed.settings.server import load_server


def methods(folder: Path, records: Path) -> dict[str, dict[str, Any]]:
    """Role -> overlays and overrides of its sites; empty where no job file is left.

    Args:
        folder: the run, as given: a simulator keeps each site's configuration in it.
        records: the folder of ``run.json``: a downloaded result has the job two levels above.
    """
    for app in _apps(folder, records):
        try:
            job = read_app(app, load_server().allowed_classes)
        except FedMedError:  # a file that cannot be read tells nothing, and the export does not depend on it
            continue
        roles = {role: job.of_role(role) for role in sorted(set(job.study.sites.values()))}
        return {role: {key: args[key] for key in ("overlays", "overrides")} for role, args in roles.items()}
    return {}


def _apps(folder: Path, records: Path) -> Iterator[Path]:
    places = [*sorted(folder.glob(f"*/simulate_job/app_*/config/{STUDY}"))]
    for place in (records.parent.parent / "job", folder / "job"):
        places += sorted(place.glob(f"**/app_*/config/{STUDY}"))
    yield from (path.parents[1] for path in places)
