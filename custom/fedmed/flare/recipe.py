"""Recipe of NVFlare for a study: the same job folder in a simulation, a proof of concept and a federation."""

import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from nvflare.job_config.api import FedJob
from nvflare.job_config.fed_job_config import FedJobConfig
from nvflare.recipe import PocEnv, Run, SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from fedmed.errors import JobError
from fedmed.files import absolute_places, private_files
from fedmed.jobs import app_configs
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import add_custom, read_job, whole_folder, write_job
from fedmed.recovery.workspace_owner import check_workspace, owned
from fedmed.settings.server import load_server
from fedmed.worker_processes import share_cores

NOTHING_ADDED = "nothing is added to a FedMedRecipe, and no parameters are given to it: write the study otherwise"


class FedMedRecipe(Recipe):
    """Recipe that runs a study in NVFlare's ``SimEnv``, ``PocEnv`` or ``ProdEnv``, each time as the same job folder.

    Args:
        study: path of a study's YAML or of a job folder, the study's keys and values, or a job.

    Attributes:
        name: of the job.
        sites: names of the study's sites, sorted.

    Raises:
        JobError: it is none of these, it has mistakes, or its name is one that NVFlare's recipes do not take.
    """

    def __init__(self, study: str | Path | Mapping[str, Any] | Job) -> None:
        job, self._source = _read(study)
        self.sites = sorted(job.study.sites)
        app_configs.files(job)  # says what does not fit now, before an environment has started anything
        self._folder = _JobFolder(job, self._source)
        super().__init__(_StudyJob(self._folder, self.sites))

    def process_env(self, env: ExecEnv) -> None:
        """Compare an environment with the study before anything starts in it.

        Raises:
            JobError: it has other sites, or its workspace is a folder that NVFlare must not delete.
        """
        if isinstance(env, SimEnv):
            check_sites(self.sites, env.clients or (), "SimEnv", exactly=True)
            check_workspace(self._workspace(env), (self._source or Path.cwd()).absolute())
        elif isinstance(env, PocEnv) and not env.project_conf_path:  # that file names the sites
            check_sites(self.sites, env.clients or (), "PocEnv")

    def run(
        self,
        env: ExecEnv,
        server_exec_params: dict[str, Any] | None = None,
        client_exec_params: dict[str, Any] | None = None,
    ) -> Run:
        """Run the study in an environment; all processes that it starts write files for their owner alone.

        Raises:
            JobError: as of :meth:`process_env`, parameters are given, which the job would not have, or another process
            uses the workspace.
        """
        self.process_env(env)  # NVFlare's own call comes when a workspace is locked already
        os.environ.update(absolute_places())  # NVFlare's processes work in folders of their own
        share_cores()
        with private_files(), owned(self._workspace(env)) if isinstance(env, SimEnv) else nullcontext():
            # Their kits are NVFlare's own, which load no class of FedMed's for an app without a folder of this name.
            self._folder.custom = isinstance(env, SimEnv | PocEnv)
            try:
                return super().run(env, server_exec_params, client_exec_params)
            finally:
                self._folder.custom = False

    def set_per_site_config(self, config: dict[str, dict]) -> None:
        """Refuse settings of sites, which are their own; JobError: always."""
        raise JobError(NOTHING_ADDED)

    def _workspace(self, env: SimEnv) -> Path:
        return Path(env.workspace_root).absolute() / self.name


def check_sites(sites: Collection[str], clients: Collection[str], env: str, exactly: bool = False) -> None:
    """Refuse an environment without sites of a study, or with others where it must have none.

    Raises:
        JobError: names the first of them.
    """
    remedy = f"write {env}(clients=recipe.sites)"
    if missing := sorted(set(sites) - set(clients)):
        raise JobError(f"the study has a site '{missing[0]}', and {env}'s clients lack it; {remedy}")
    if exactly and (more := sorted(set(clients) - set(sites))):
        raise JobError(f"{env}'s clients have '{more[0]}', which is not a site of the study; {remedy}")


class _StudyJob(FedJob):
    """A study as NVFlare's environments take a job."""

    def __init__(self, folder: "_JobFolder", sites: list[str]) -> None:
        name = folder.job_name
        try:
            super().__init__(name)
        except ValueError as error:
            raise JobError(f"'name' of the study, '{name}': {error}; change it for NVFlare's recipes") from error
        self.clients, self.job = sites, folder

    def to(self, obj: Any, target: str, id: Any = None, **kwargs: Any) -> None:
        """Refuse what a recipe's methods would add; JobError: always."""
        raise JobError(NOTHING_ADDED)

    def add_file_to(self, src_path: str, target: str, dest_dir: Any = None, app_folder_type: Any = None) -> None:
        """Refuse a file; JobError: always."""
        raise JobError(NOTHING_ADDED)


class _JobFolder(FedJobConfig):
    """FedMed's job folder, in the place of the one that NVFlare writes of a job's components.

    Args:
        source: where the job was read; a folder is copied, with the state of the run that it resumes.

    Attributes:
        custom: whether every app is given a ``custom/``.
    """

    def __init__(self, job: Job, source: Path | None) -> None:
        super().__init__(job.name, 1)
        self.made, self.source, self.custom = job, source, False

    def generate_job_config(self, job_root: str) -> None:
        """Write the folder ``job_root/<name of the job>``; an earlier one is replaced.

        Raises:
            JobError: there is a folder of this name that is not a job's.
        """
        folder = Path(job_root) / self.job_name
        if self.source is not None and self.source.is_dir():
            with whole_folder(folder, replace=True) as new:
                shutil.copytree(self.source, new)
        else:
            write_job(self.made, folder, replace=True)
        if self.custom:
            add_custom(folder)


def _read(study: object) -> tuple[Job, Path | None]:
    """A job, and where it was read, if it was."""
    if isinstance(study, Job):
        return study, None
    allowed = load_server().allowed_classes
    if isinstance(study, Mapping):
        return Job.of(study, allowed), None
    if not isinstance(study, str | Path):
        kind = type(study).__name__
        raise JobError(f"a {kind} is not a study; give the path of its YAML or job folder, its values, or a Job")
    path = Path(study).expanduser()
    if not path.exists():
        raise JobError(f"no study at {path}: there is no such file or folder")
    return read_job(path, allowed), path
