"""One run of a job: made once, found again by what it is made of."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedmed import __version__
from fedmed.durable_files import save_json
from fedmed.errors import JobError
from fedmed.experiments.job_of_link import LinkJob
from fedmed.experiments.site_lists import state_of_files
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.recovery.interrupted_workspace import records
from fedmed.recovery.server_state import RESULT, STATE
from fedmed.settings.site import SiteConfig

RUN = Path("simulate_job") / "fedmed"
MADE_OF, STARTED_WITH, LOG = "made_of.json", "started_with.json", "log.txt"


@dataclass(frozen=True)
class JobRun:
    """A job with one seed, ready to run.

    Attributes:
        job: what is run.
        sites: settings of its sites.
        folder: where its files lie; its name is a hash of all that the result depends on.
    """

    job: LinkJob
    sites: Mapping[str, SiteConfig]
    folder: Path


def named_run(job: LinkJob, sites: Mapping[str, SiteConfig], folder: Path, data: str) -> JobRun:
    """A run whose folder below ``folder`` is named by the data and by a hash of what the result depends on."""
    return JobRun(job, sites, folder / f"{data}-{_name(_made_of(job, sites))}")


def complete(run: JobRun, conclude: Callable[[Server], object]) -> None:
    """Run, unless that was done before; a stopped run goes on after its last good round.

    Args:
        run: what to run.
        conclude: called with the server of the finished job, before the run counts as done; it may refuse.

    Raises:
        FedMedError: the job failed.
    """
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{run.folder}.lock"):  # another table may want the same run now
        if finished(run):
            return
        made_of, files = _unchanged(run), _files(run)
        if not (goes_on := _stopped(run, files)):
            if run.folder.exists():
                shutil.rmtree(run.folder)
            run.job.write(run.folder / "job")
            save_json(run.folder / STARTED_WITH, files)
        with _logged(run.folder / LOG):
            conclude(run_job(run.folder / "job", run.folder, run.sites, resume=goes_on))
            _unchanged(run)
        _forget_private_state(run)
        save_json(run.folder / MADE_OF, {**made_of, "files": files})


def finished(run: JobRun) -> bool:
    """Whether the run's result is there and its images are still those that it was made from."""
    made_of = _read(run.folder / MADE_OF)
    return made_of is not None and made_of.get("files") == _files(run)


def _stopped(run: JobRun, files: Mapping[str, str]) -> bool:
    """Whether the folder holds a part of just this run, made from the same images."""
    server = records(run.folder)
    # One that was stopped after its job, before it counted as done, has nothing to go on with.
    started = (server / STATE).is_file() and not (server / RESULT).is_file()
    return started and _read(run.folder / STARTED_WITH) == files


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _files(run: JobRun) -> dict[str, str]:
    return {site: state_of_files(config) for site, config in run.sites.items()}


def _unchanged(run: JobRun) -> dict[str, Any]:
    """What the run is made of now, which must be what it was when it got its name: a bundle can be edited meanwhile."""
    made_of = _made_of(run.job, run.sites)
    if not run.folder.name.endswith(_name(made_of)):
        raise JobError("the bundle or a datalist was changed after this command started; start it again")
    return made_of


def _forget_private_state(run: JobRun) -> None:
    """Optimizer states are most of a run's bytes, and nothing continues a finished run."""
    for folder in [run.folder / site / RUN / "state" for site in run.sites] + [*run.folder.glob("*/before-*")]:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Messages of a run go to its own file: those of several runs at a time would be a riddle."""
    log, handler = logging.getLogger("fedmed"), logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    except Exception:
        log.exception("the run failed")
        raise
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
        handler.close()


def _name(made_of: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def _made_of(job: LinkJob, sites: Mapping[str, SiteConfig]) -> dict[str, Any]:
    """What a result depends on: a change of any of it makes another run."""
    settings = {
        site: {k: str(v) for k, v in asdict(config).items() if k != "datalist"} for site, config in sites.items()
    }
    lists = {site: hashlib.sha256(config.datalist.read_bytes()).hexdigest() for site, config in sites.items()}
    return {"job": job.files(), "bundle": job.bundle(), "sites": settings, "datalists": lists, "fedmed": __version__}
