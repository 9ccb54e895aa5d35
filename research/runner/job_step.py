"""A step of an arm that is a job: run once, found again by what it is made of."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.find import package_digest
from fedmed.durable_files import save_json
from fedmed.errors import JobError
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.reported_numbers import FRAMES
from fedmed.federation.server import Server
from fedmed.federation.warm_starts import FOLDER as WARM_STARTS
from fedmed.federation.warm_starts import WarmStarts
from fedmed.jobs.app_configs import files
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.kinds.find_kind import kind_of
from fedmed.messages.answers import Answer
from fedmed.messages.task import Task
from fedmed.recovery.checkpoint import RESULT, Checkpoints
from fedmed.recovery.interrupted_workspace import records
from fedmed.settings.server import load_server
from fedmed.settings.site import SiteConfig
from research.runner.job_scores import RUN, check_complete, read_job_scores, read_rounds, tested_patients
from research.runner.score_table import joined
from research.runner.site_lists import state_of_files
from research.runner.stages import Place, Stage, StageStep
from research.runner.start_model import models_for

MADE_OF, STARTED_WITH, LOG = "made_of.json", "started_with.json", "log.txt"
CHECKED: dict[tuple[str, tuple[str, ...], str], dict[str, str]] = {}  # files of jobs that their bundle has accepted


@dataclass(frozen=True)
class JobStep(StageStep):
    """A job with one seed, and the scores of its sites.

    Where sites take turns in the table's places, scores are those of the place, and units are told apart by the turn.
    """

    apart = True

    job: Job  # what is run
    sites: Mapping[str, SiteConfig]  # settings of its sites
    path: Path  # folder of its files; its name ends with a hash of all that the result depends on
    node: str = ""
    start: "JobStep | None" = field(default=None, kw_only=True)  # leaves the job's checkpoint
    blank: bool = field(default=False, kw_only=True)  # whether what is taken from the checkpoint is 0
    turn: str = field(default="", kw_only=True)
    beginning: int = field(default=0, kw_only=True)  # its first rounds, which other runs may have in common with it
    places: Mapping[str, str] = field(default_factory=dict, kw_only=True)  # site -> the table's, where they take turns

    def machines(self) -> Sequence[SiteConfig]:
        return list(self.sites.values())

    def missing(self) -> bool:
        made_of = _read(self.path / MADE_OF)  # written last
        return made_of is None or made_of.get("files") != self._files()

    def make(self) -> None:
        """Run, unless another command has meanwhile; a stopped run goes on after its last good round."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock"):  # another table may want the same run now
            if not self.missing():
                return
            made_of, images = self._unchanged(), self._files()
            if not (goes_on := self._stopped(images)):
                if self.path.exists():
                    shutil.rmtree(self.path)
                write_job(self.job, self.path / "job")
                save_json(self.path / STARTED_WITH, images)
            with (
                _logged(self.path / LOG),
                models_for(self.job.study, self.start.path if self.start else None, self.path, self.blank),
            ):
                self.conclude(run_job(self.path / "job", self.path, self.sites, goes_on, self._answer(made_of, images)))
                self._unchanged()
            # Optimizer states are most of a run's bytes, and nothing continues a finished run.
            for folder in [self.path / site / RUN / "state" for site in self.sites] + [*self.path.glob("*/before-*")]:
                shutil.rmtree(folder, ignore_errors=True)
            save_json(self.path / MADE_OF, {**made_of, "files": images})

    def _answer(self, made_of: Mapping[str, Any], images: Mapping[str, str]) -> Callable[[Client, Task], Answer]:
        """The site's own work, or, where warm starts are kept, what an equal run has done already."""
        if not (kept := self.path.parent / WARM_STARTS).is_dir():
            return Client.answer
        sites, lists, code = made_of["sites"], made_of["datalists"], made_of["fedmed"]
        facts = {site: [sites[site], lists[site], images[site], code] for site in self.sites}
        return WarmStarts(kept, self.beginning, facts).answer

    def made_by_other_code(self) -> Path | None:
        """A finished run that differs from this one in nothing but the code that made it."""
        others = [path for path in sorted(self.path.parent.glob(f"*/{MADE_OF}")) if path.parent != self.path]
        wanted = _without_code(self._made_of()) if others else {}
        return next((path.parent for path in others if _read_without_code(path) == wanted), None)

    def conclude(self, server: Server) -> None:
        """Called with the server of the finished job, before the run counts as done; it may refuse."""
        study = self.job.study
        if not study.evaluate:
            return
        # With partial sharing, sites without a decoder have no score by design.
        wanted = {site for site, role in study.sites.items() if not self.job.keeps_private or role == "supervised"}
        check_complete(self.path, wanted)

    def scores(self) -> pd.DataFrame | None:
        study = self.job.study
        if not study.evaluate:
            return None
        patients = {name: tested_patients(site) for name, site in self.sites.items()}
        bundle = Bundle(study.bundle, study.overlays)
        numbers = kind_of(bundle).numbers([one.name for one in study.structures or bundle.classes])
        counts = numbers if FRAMES in numbers else ()
        scores = read_job_scores(self.path, study.seed, bundle.score.name, patients, counts)
        scores = joined([scores, read_rounds(self.path, study.seed)]) if counts else scores
        return _in_places(scores, self.places, self.turn) if self.turn else scores

    def _stopped(self, images: Mapping[str, str]) -> bool:
        """Tell whether the folder holds a part of just this run, made from the same images."""
        server = records(self.path)
        # One that was stopped after its job, before it counted as done, has nothing to go on with.
        started = Checkpoints(server).there() and not (server / RESULT).is_file()
        return started and _read(self.path / STARTED_WITH) == images

    def _files(self) -> dict[str, str]:
        return {site: state_of_files(config) for site, config in self.sites.items()}

    def _unchanged(self) -> dict[str, Any]:
        """Return what it is made of now, which must be what its name says: a bundle can be edited meanwhile."""
        made_of = self._made_of()
        if not self.path.name.endswith(_name(made_of)):
            raise JobError("the bundle or a datalist was changed after this command started; start it again")
        return made_of

    def _made_of(self) -> dict[str, Any]:
        return _made_of(self.job, self.sites, self.start.path if self.start else None, self.blank)


def run_folder(
    place: Place, job: Job, sites: Mapping[str, SiteConfig], start: Path | None = None, blank: bool = False
) -> Path:
    """Folder of a run, named by the data and by a hash of what the result depends on."""
    return place.runs / f"{place.data.name}-{_name(_made_of(job, sites, start, blank))}"


def _made_of(job: Job, sites: Mapping[str, SiteConfig], start: Path | None, blank: bool) -> dict[str, Any]:
    """Everything that a result depends on: a change of any of it makes another run."""
    settings = {
        site: {k: str(v) for k, v in asdict(config).items() if k != "datalist"} for site, config in sites.items()
    }
    lists = {site: hashlib.sha256(config.datalist.read_bytes()).hexdigest() for site, config in sites.items()}
    bundle = Bundle(job.study.bundle, job.study.overlays).digest
    parts = {
        "job": _job_files(job, bundle),
        "bundle": bundle,
        "sites": settings,
        "datalists": lists,
        "fedmed": package_digest(),
    }
    return parts | _server(job) | ({"start": start.name, "blank": blank} if start else {})


def _job_files(job: Job, bundle: str) -> dict[str, str]:
    """Files of the job; it is checked against a bundle of this digest once, though steps ask for their folder often."""
    key = (job.text, job.allowed, bundle)
    if key not in CHECKED:
        CHECKED[key] = files(job)
    return CHECKED[key]


def _server(job: Job) -> dict[str, Any]:
    """Data of a server that trains: its settings and the digest of its list."""
    if job.method.server_training() is None:
        return {}
    server = load_server(None, job.study.sites)
    facts = {**server.facts(), "threads": server.threads}  # sums depend on them
    digest = hashlib.sha256(Path(facts["datalist"]).read_bytes()).hexdigest()
    return {"server": {**{key: str(value) for key, value in facts.items()}, "digest": digest}}


@cache
def _read_without_code(path: Path) -> dict[str, Any]:
    """Read once a process: every missing step looks at all runs, and a run's name is a hash of what is read."""
    return _without_code(_read(path) or {})


def _without_code(made_of: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in made_of.items() if key not in ("bundle", "fedmed", "files")}


def _name(made_of: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError):
        return None


def _in_places(scores: pd.DataFrame, places: Mapping[str, str], turn: str) -> pd.DataFrame:
    """Scores under the table's names of sites; a unit of several turns is one of each, still of the same patient."""
    sites, units = scores["site"].astype(str), scores["unit"].astype(str)
    owners = scores["patient"].astype(str) if "patient" in scores else ""
    cases = scores["list"].astype(str) == "test"
    placed = scores.assign(site=sites.map(places).fillna(sites), unit=units.where(~cases, units + f", {turn}"))
    return placed.assign(patient=owners)


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


def job_before(stage: Stage, place: Place, before: StageStep | None) -> JobStep:
    """The step before, of a stage that goes on from a finished job.

    Raises:
        JobError: it is none, or not a job.
    """
    if isinstance(before, JobStep):
        return before
    raise JobError(f"arm '{place.arm}': {type(stage).__name__} needs a stage before it that is a job; put one there")
