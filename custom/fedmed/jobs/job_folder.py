"""A job folder of NVFlare: write it from a study, and read the study that each app carries; or a study alone."""

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmed.errors import JobError
from fedmed.files import read_json
from fedmed.jobs import app_configs
from fedmed.jobs.given_path import demand, described, kind_of
from fedmed.jobs.job import STUDY, Job

PLACE = Path("config") / STUDY  # in each app


def read_job(folder: Path, allowed: Collection[str] = ()) -> Job:
    """Read a job folder, or the YAML of a study.

    Raises:
        JobError: a file is missing or malformed, its apps carry different studies, or the study has mistakes.
    """
    folder = Path(folder)
    if folder.is_file():
        demand(folder, "study")
        return Job.parse(_read(folder), str(folder), allowed)
    if not (meta := folder / "meta.json").is_file():
        if kind_of(folder) != "other folder":
            raise JobError(f"a study or a job folder is needed here: {described(folder)}")
        raise JobError(f"{meta} is missing; is {folder} a job folder?")
    deploy = read_json(meta, JobError).get("deploy_map")
    if not isinstance(deploy, dict):
        raise JobError(f"{meta}: 'deploy_map' (app -> sites) is missing")
    server = next((app for app, sites in deploy.items() if "server" in sites), None)
    if server is None or len(deploy) < 2:
        raise JobError(f"{meta}: 'deploy_map' needs the server and at least one site; it has {deploy}")
    texts = {app: _read(folder / app / PLACE) for app in deploy}
    if other := [app for app in texts if texts[app] != texts[server]]:
        raise JobError(
            f"{folder / other[0] / PLACE} differs from {folder / server / PLACE}; all apps of a job carry the same "
            "study: write the job with fedmed study package"
        )
    job = Job.parse(texts[server], str(folder / server / PLACE), allowed, folder / server)
    placed = {site for sites in deploy.values() for site in sites if site != "server"}
    if strange := sorted(placed ^ set(job.study.sites)):
        raise JobError(f"{meta}: site '{strange[0]}' is not both there and in {PLACE}; write the job anew")
    return job


def read_app(folder: Path, allowed: Collection[str] = ()) -> Job:
    """Read the study of one app, as server and sites find it in their workspace; errors as of :func:`read_job`."""
    return Job.parse(_read(Path(folder) / PLACE), str(Path(folder) / PLACE), allowed, Path(folder))


def write_job(job: Job, folder: Path, replace: bool = False) -> Path:
    """Write a job folder with :func:`whole_folder`.

    Raises:
        JobError: as there, or the bundle does not fit.
    """
    files = app_configs.files(job)
    with whole_folder(folder, replace) as new:
        for path, text in files.items():
            target = new / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
    return Path(folder)


def add_custom(folder: Path) -> None:
    """Give each app of a job folder a ``custom/``, without which NVFlare's simulator loads no class of FedMed's."""
    for path in folder.glob(f"*/{PLACE}"):
        (path.parents[1] / "custom").mkdir(exist_ok=True)
        (path.parents[1] / "custom" / "README.md").write_text(app_configs.CUSTOM_README, encoding="utf-8")


@contextmanager
def whole_folder(folder: Path, replace: bool) -> Iterator[Path]:
    """Give a path to write a job folder at; it gets its place when all is written, or nothing stays.

    Raises:
        JobError: the folder exists, or is not a job folder and may not be replaced.
    """
    folder = Path(folder)
    if folder.exists() and not (replace and (folder / "meta.json").is_file()):
        what = " and is not a job folder" if replace else ""
        raise JobError(f"{folder} exists{what}; choose another or use --replace")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".job-") as temporary:
        new = Path(temporary) / "job"
        yield new
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise JobError(
            f"{path} is missing; write the job with fedmed study package of this version of FedMed"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path} is not a readable text: {error}") from error
