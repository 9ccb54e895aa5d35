"""Input of NVFlare's simulator: a job folder, and the sites of a job."""

import json
import shutil
import tempfile
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.jobs.given_path import described, kind_of


def job_sites(job: Path) -> list[str]:
    """Return the sites named in the job's ``deploy_map``.

    Raises:
        JobError: no such job, a damaged ``meta.json``, or one that names no site.
    """
    path = job / "meta.json"
    if not job.is_dir():
        if (study := job.parent.with_name("studies") / f"{job.name}.yaml").is_file():
            raise JobError(f"{job.name} is a study now; run it by: fedmed simulate {shown(study)}")
        if job.suffix in (".yaml", ".yml"):
            neighbours = [path.name for path in job.parent.glob(f"*{job.suffix}")]
            meant = "".join(f"; did you mean {near}?" for near in get_close_matches(job.name, neighbours, 1))
            raise JobError(f"no study at {job}: the file does not exist{meant or '; correct the path'}")
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


def packaged(job: Path, scratch: Path, **changes: Any) -> Path:
    """Write a study's job folder to ``scratch``, leave a folder without changes as it is.

    Args:
        changes: values of the study's keys that are other ones in this run.

    Raises:
        JobError: the study has mistakes.
    """
    if not job.is_file() and not changes:
        return job
    from fedmed.jobs.job_folder import read_job, write_job
    from fedmed.settings.server import load_server

    read = read_job(job, load_server().allowed_classes)
    name = read.study.name if job.is_file() else job.name
    return write_job(read.changed(changes) if changes else read, scratch / "packaged" / name)


def shown(path: Path) -> Path:
    """A path as a person in this folder would write it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def for_simulator(job: Path, scratch: Path) -> Path:
    """The job as NVFlare's simulator takes it: each app has a folder ``custom/``, without which it loads no class.

    Args:
        job: job folder; one of a study with ``custom: false``, for real sites, lacks these folders.
        scratch: gets a copy of such a job, of the same name and with the same studies.
    """
    if all(any((path.parents[1] / "custom").glob("*")) for path in job.glob("*/config/study.yaml")):
        return job
    from fedmed.jobs.job_folder import add_custom

    copy = Path(tempfile.mkdtemp(dir=scratch)) / job.name
    shutil.copytree(job, copy)
    add_custom(copy)
    return copy
