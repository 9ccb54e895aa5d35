"""Input of NVFlare's simulator: a job folder, the sites of a job, and a workspace that it may delete."""

import json
import shutil
import tempfile
from pathlib import Path

from fedmed.errors import JobError
from fedmed.jobs.given_path import described, kind_of

NVFLARE_ENTRIES = {"server", "startup", "local"}  # what NVFlare itself leaves when a job fails before it begins


def job_sites(job: Path) -> list[str]:
    """Return the sites named in the job's ``deploy_map``.

    Raises:
        JobError: no such job, a damaged ``meta.json``, or one that names no site.
    """
    path = job / "meta.json"
    if not job.is_dir():
        if (study := job.parent.with_name("studies") / f"{job.name}.yaml").is_file():
            raise JobError(f"{job.name} is a study now; run it by: fedmed simulate {shown(study)}")
        raise JobError(f"no job at {job}: the folder does not exist; give a folder of jobs/, such as jobs/covid_fssl")
    if not path.is_file():
        if kind_of(job) != "other folder":
            raise JobError(f"a study or a job folder is needed here: {described(job)}")
        raise JobError(f"{job} is not a job: meta.json is missing; give a folder of jobs/, such as jobs/covid_fssl")
    try:
        deployed = json.loads(path.read_text(encoding="utf-8"))["deploy_map"]
        named = [site for app in deployed.values() for site in app]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobError(f"{path} is damaged ({type(error).__name__}: {error}); 'deploy_map' must list sites") from error
    sites = [site for site in dict.fromkeys(named) if site != "server"]
    if not sites or any(site.startswith("@") for site in sites):
        raise JobError(f"{path}: 'deploy_map' must name each site, because the simulator starts one client for each")
    return sites


def packaged(job: Path, scratch: Path) -> Path:
    """Write a study's job folder to ``scratch``, leave a folder as it is; JobError: the study has mistakes."""
    if not job.is_file():
        return job
    from fedmed.jobs.job_folder import read_job, write_job
    from fedmed.settings.server import load_server

    read = read_job(job, load_server().allowed_classes)
    return write_job(read, scratch / "packaged" / read.study.name)


def shown(path: Path) -> Path:
    """A path as a person in this folder would write it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def for_simulator(job: Path, scratch: Path) -> Path:
    """The job as NVFlare's simulator takes it: each app has a folder ``custom/``, without which it loads no class.

    Args:
        job: job folder; one of a study with ``custom: false``, for real sites, lacks these folders.
        scratch: gets a copy of such a job, of the same name and with the same studies.
    """
    from fedmed.jobs.app_configs import CUSTOM_README
    from fedmed.jobs.job_folder import PLACE

    if all(any((path.parents[1] / "custom").glob("*")) for path in job.glob(f"*/{PLACE}")):
        return job
    copy = Path(tempfile.mkdtemp(dir=scratch)) / job.name
    shutil.copytree(job, copy)
    for path in copy.glob(f"*/{PLACE}"):
        (path.parents[1] / "custom").mkdir(exist_ok=True)
        (path.parents[1] / "custom" / "README.md").write_text(CUSTOM_README, encoding="utf-8")
    return copy


def check_workspace(workspace: Path, job: Path) -> None:
    """Refuse a workspace that NVFlare, which deletes the folder at every start, must not delete."""
    if " " in str(workspace):
        raise JobError(f"the workspace {workspace} has a space in its path, which NVFlare's simulator cannot handle")
    if job.is_relative_to(workspace) or Path.cwd().is_relative_to(workspace):
        raise JobError(
            f"the workspace {workspace} holds the job or the current folder and would be deleted; choose another"
        )
    if not workspace.exists():
        return
    if not workspace.is_dir():
        raise JobError(f"the workspace {workspace} is a file; choose another with --workspace")
    from fedmed.reports.run import JOB_FOLDER

    entries = {entry.name for entry in workspace.iterdir()}
    earlier_run = (workspace / "server" / JOB_FOLDER.parts[0]).is_dir()
    if entries and not earlier_run and not ("server" in entries and entries <= NVFLARE_ENTRIES):
        raise JobError(
            f"the workspace {workspace} is not empty and not an earlier run (server/{JOB_FOLDER.parts[0]} is missing); "
            "NVFlare would delete it; choose another with --workspace"
        )
