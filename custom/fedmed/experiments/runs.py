"""One run of one arm: made once, found again by what it is made of."""

import csv
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedmed import __version__
from fedmed.bundles.load import Bundle
from fedmed.errors import DataError
from fedmed.experiments.federation import Federation
from fedmed.experiments.plan import job_of, roles_of, site_name
from fedmed.experiments.scores import MEAN_CASE, Score
from fedmed.experiments.sites import POOL, Cases, pooled_site, site_for
from fedmed.experiments.table import Arm, Table
from fedmed.federation.loop import run_job
from fedmed.federation.package import JobSpec, write_job
from fedmed.federation.site import SiteConfig, load_site
from fedmed.federation.state import save_json

MADE_OF, RUN = "made_of.json", Path("simulate_job") / "fedmed"
FOLDERS = {"selected": "evaluation", "last": "evaluation_last"}
RESULTS = {"selected": ("validation", "test"), "last": ("validation_last", "test_last")}


@dataclass(frozen=True)
class Run:
    """One arm with one seed, ready to run.

    Attributes:
        arm: its name.
        seed: of weights, sampling and augmentation.
        job: what is run.
        sites: settings of its sites.
        folder: where its files lie; its name is a hash of all that the result depends on.
    """

    arm: str
    seed: int
    job: JobSpec
    sites: Mapping[str, SiteConfig]
    folder: Path


def prepare(arm: Arm, table: Table, federation: Federation, seed: int, folder: Path) -> Run:
    """Write the lists of an arm's sites and name its run.

    Args:
        arm, table, federation: what to run.
        seed: of the run.
        folder: of all runs; equal arms of several tables share one.

    Raises:
        JobError, SiteConfigError, DataError: the arm cannot be run on this federation.
    """
    job = job_of(arm, table, federation, seed)
    roles = roles_of(arm, table, federation)
    cases = {site: Cases(load_site(site), federation.labelled) for site in roles if site != POOL}
    lists = folder / "lists" / hashlib.sha256(repr((sorted(roles.items()), sorted(arm.pool))).encode()).hexdigest()[:12]
    lists = lists.with_name(f"{federation.name}-{lists.name}")
    sites = {site: site_for(cases[site], role, lists) for site, role in roles.items() if site != POOL}
    if arm.pool:
        sites[POOL] = pooled_site([cases[site_name(site, arm, federation)] for site in arm.pool], lists)
    made_of = _made_of(job, sites)
    name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
    return Run(arm.name, seed, job, sites, folder / f"{federation.name}-{name}")


def run(run: Run) -> list[Score]:
    """Run, unless that was done before, and return the scores; a stopped run begins again.

    Raises:
        FedMedError: the job failed, or a site that trains never could.
    """
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{run.folder}.lock"):  # another table may want the same run now
        if not finished(run):
            if run.folder.exists():
                shutil.rmtree(run.folder)
            write_job(run.job, run.folder / "job")
            with _logged(run.folder / "log.txt"):
                run_job(run.folder / "job", run.folder, run.sites)
            _forget_private_state(run)
            save_json(run.folder / MADE_OF, _made_of(run.job, run.sites))
    return scores_of(run)


def finished(run: Run) -> bool:
    """Whether the run's result is there; its last file is written when all others are."""
    return (run.folder / MADE_OF).is_file()


def scores_of(run: Run) -> list[Score]:
    """Every test case's Dice and every labelled site's mean validation Dice, of both models."""
    result = json.loads((run.folder / "server" / RUN / "result.json").read_text(encoding="utf-8"))
    scores = []
    for model, (validation, test) in RESULTS.items():
        for site, dice in result[validation].items():
            scores.append(Score(run.arm, run.seed, site, "valid", model, MEAN_CASE, dice))
        for site, metrics in result.get(test, {}).items():
            if metrics.get("n_cases"):
                cases = _read_cases(run.folder / site / RUN / FOLDERS[model] / "cases.csv")
                scores += [Score(run.arm, run.seed, site, "test", model, *case) for case in cases]
    return scores


def _read_cases(path: Path) -> list[tuple[str, float]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return [(row["case"], float(row["dice"])) for row in csv.DictReader(stream)]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{path}: the scores of a finished run cannot be read ({error}); remove {path.parents[3]}"
        ) from error


def _forget_private_state(run: Run) -> None:
    """Optimizer states are most of a run's bytes, and nothing continues a finished run."""
    for site in run.sites:
        shutil.rmtree(run.folder / site / RUN / "state", ignore_errors=True)


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


def _made_of(job: JobSpec, sites: Mapping[str, SiteConfig]) -> dict[str, Any]:
    """What a result depends on: a change of any of it makes another run."""
    settings = {
        site: {k: str(v) for k, v in asdict(config).items() if k != "datalist"} for site, config in sites.items()
    }
    lists = {site: hashlib.sha256(config.datalist.read_bytes()).hexdigest() for site, config in sites.items()}
    bundle = Bundle(job.bundle, job.overlays).digest
    return {"job": job.files(), "bundle": bundle, "sites": settings, "datalists": lists, "fedmed": __version__}
