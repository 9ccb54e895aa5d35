"""Whether all sites of a study could begin, where they are on this machine, as in a simulation."""

from collections.abc import Iterator
from pathlib import Path

from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.site_check import Options, Silent, check_data
from fedmed.checks.site_findings import PROBLEM
from fedmed.errors import FedMedError, JobError
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.server import load_server
from fedmed.settings.site import load_site

SHOWN = 3  # of a site's problems: a class that the study does not name is one at every image of it


def check_study(folder: Path) -> None:
    """Read every site's settings, datalist and classes, the bundle, and the file that the server starts from.

    No image is opened: this takes seconds, and what it finds would otherwise end the run in its first round.

    Args:
        folder: job folder.

    Raises:
        JobError: the job cannot be read; or the server or a site could not begin: names all of them, and why.
    """
    job = read_job(folder, load_server().allowed_classes)
    found = [f"server: {text}" for text in _at_server(job, folder)]
    for site in job.clients:
        found += [f"{site}: {text}" for text in _at_site(site, folder)]
    if found:
        lines = "".join(f"\n- {text}" for text in found)
        raise JobError(f"{job.name} cannot start; scripts/check_site.py SITE --job {folder} says more:{lines}")


def _at_server(job: Job, folder: Path) -> Iterator[str]:
    try:
        store = ModelStore.from_args(job.persistor, folder)
        if store.checkpoint or store.encoder:
            _ = store.initial
    except FedMedError as error:
        yield str(error)


def _at_site(site: str, folder: Path) -> Iterator[str]:
    try:
        checked = CheckedSite(load_site(site))
        check_data(checked, Options(job=str(folder), skip=("data",)), Silent())
    except FedMedError as error:
        yield str(error)
        return
    problems = [finding.text for finding in checked.findings if finding.level == PROBLEM]
    yield from problems[:SHOWN]
    if more := problems[SHOWN:]:
        yield f"and {len(more)} more"
