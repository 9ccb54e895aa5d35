"""The control of a job on this machine: written and checked before either run begins."""

from pathlib import Path

from fedmed.checks.study_check import check_study
from fedmed.data.datalist import list_entries
from fedmed.errors import FedMedError, JobError
from fedmed.jobs.control_study import control_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.methods.control_kinds import LEFT_OUT
from fedmed.recovery.interrupted_workspace import records
from fedmed.recovery.server_state import RESULT
from fedmed.reports.control_run import CONTROL, differences
from fedmed.reports.run import read_run
from fedmed.reports.words import join
from fedmed.settings.server import load_server
from fedmed.settings.site import load_site


def write_control(job: Path, scratch: Path, kind: str = LEFT_OUT) -> Path:
    """Write the control of a job, and check it as :func:`fedmed.checks.study_check.check_study` does.

    Args:
        job: job folder.
        scratch: folder in which the control's gets the name of the job's.
        kind: of the control, see :func:`fedmed.jobs.control_study.control_job`.

    Raises:
        JobError: the job has no control, see :func:`fedmed.jobs.control_study.control_job`, or no site with a test
            list, or a site whose folder the control needs; or the control could not begin.
    """
    read = read_job(job, load_server().allowed_classes)
    if not (scored := _scored(read)):
        raise JobError(f"{read.name} has no control: no site has a list 'testing', which both runs would score")
    if CONTROL in read.clients:
        raise JobError(f"{read.name} has no control: its folder would be that of the site '{CONTROL}'; rename the site")
    control = control_job(read, unscored=set(read.clients) - scored, kind=kind)
    try:
        folder = write_job(control, scratch / job.name)
        check_study(folder)
    except FedMedError as error:
        raise JobError(f"{read.name} has no control that could run: {error}") from error
    return folder


def unmeasured(job: Path) -> str:
    """Of which sites without labels no control can say what they gain, in words; empty where there are none.

    Raises:
        JobError: as :func:`write_control`.
    """
    read = read_job(job, load_server().allowed_classes)
    if not (missing := sorted(set(read.study.of_role("unsupervised")) - _scored(read))):
        return ""
    have, gain = ("has", "it gains") if len(missing) == 1 else ("have", "they gain")
    return (
        f"{join(missing)} {have} no list 'testing', so neither run is scored there, and what {gain} stays unknown. "
        "Labels of a few cases, used for this test alone, would tell: prepare the site with them and '--split 0 0 1'"
    )


def _scored(read: Job) -> set[str]:
    """The sites that have a test list."""
    return {site for site in read.clients if list_entries(load_site(site).datalist, "testing")}


def is_done(job: Path, workspace: Path) -> bool:
    """Whether a workspace holds a finished run, and that is one of a job.

    Raises:
        JobError: a finished run of another job.
    """
    if not (records(workspace) / RESULT).is_file():
        return False
    run = read_run(workspace)
    if found := differences(run.config, config_of(read_job(job, load_server().allowed_classes))):
        raise JobError(f"{workspace} holds a finished run of another job than {job}: {'; '.join(found)}")
    return True


def config_of(job: Job) -> dict[str, dict[str, object]]:
    """What a run's record would say of the job."""
    return {"controller": job.controller, "aggregator": job.aggregator, "model": job.persistor}
