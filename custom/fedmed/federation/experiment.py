"""A table of arms and seeds, run in this process's machine and resumable."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from fedmed import __version__
from fedmed.bundles.load import Bundle
from fedmed.errors import JobError
from fedmed.federation.loop import run_job
from fedmed.federation.package import JobSpec, write_job
from fedmed.federation.site import SiteConfig, load_site
from fedmed.federation.state import save_json

MADE_OF = "made_of.json"


@dataclass(frozen=True)
class Arm:
    """One row of a table.

    Attributes:
        name: as the table shows it.
        job: arguments of :class:`fedmed.federation.package.JobSpec`.
        datalists: site -> file beside that site's own datalist to use instead, e.g. one with labels.
    """

    name: str
    job: Mapping[str, Any]
    datalists: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Arms that share sites, seeds and budget.

    Attributes:
        name: of the table.
        arms: its rows.
        seeds: each arm is run once for each.
    """

    name: str
    arms: Sequence[Arm]
    seeds: Sequence[int]


def load_experiment(path: Path) -> Experiment:
    """Read an experiment's YAML: ``seeds``, ``job`` (shared settings) and ``arms`` (name -> own settings).

    Raises:
        JobError: missing file, malformed YAML or a missing key.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        shared, arms = content.get("job", {}), []
        for name, own in content["arms"].items():
            own = dict(own)
            datalists = own.pop("datalists", {})
            arms.append(Arm(name, {**shared, **own}, datalists))
        return Experiment(Path(path).stem, arms, list(content["seeds"]))
    except (OSError, yaml.YAMLError, KeyError, AttributeError, TypeError) as error:
        raise JobError(f"{path} is no experiment (keys seeds, job, arms): {error!r}") from error


def run_arm(arm: Arm, seed: int, folder: Path) -> dict[str, Any]:
    """Run one arm with one seed and return its ``result.json``; a finished run is not repeated.

    Args:
        arm: the row.
        seed: of weights, sampling and augmentation.
        folder: of the experiment; the run lies in ``<arm>/seed_<seed>``.
    """
    workspace = folder / arm.name.replace(" ", "_") / f"seed_{seed}"
    result = workspace / "server" / "simulate_job" / "fedmed" / "result.json"
    job = workspace / "job"
    spec = JobSpec(name=arm.name, **{**arm.job, "seed": seed})
    sites = {site: load_site(site) for site in spec.sites}
    for site, datalist in arm.datalists.items():
        sites[site] = replace(sites[site], datalist=sites[site].datalist.with_name(datalist))
    made_of = _made_of(spec, sites)
    if (
        result.is_file()
        and (workspace / MADE_OF).is_file()
        and json.loads((workspace / MADE_OF).read_text()) == made_of
    ):
        return json.loads(result.read_text(encoding="utf-8"))
    _clear(workspace)
    write_job(spec, job)
    save_json(workspace / MADE_OF, made_of)
    run_job(job, workspace, sites)
    return json.loads(result.read_text(encoding="utf-8"))


def _made_of(spec: JobSpec, sites: Mapping[str, SiteConfig]) -> dict[str, Any]:
    """What a result depends on: a change of any of it makes the result outdated."""

    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    settings = {site: {k: str(v) for k, v in asdict(config).items()} for site, config in sites.items()}
    lists = {site: digest(config.datalist) for site, config in sites.items()}
    bundle = Bundle(spec.bundle, spec.overlays).digest
    return {"job": spec.files(), "bundle": bundle, "sites": settings, "datalists": lists, "fedmed": __version__}


def _clear(workspace: Path) -> None:
    """Remove an unfinished or outdated run of this arm; only files that a run writes."""
    for child in workspace.iterdir() if workspace.is_dir() else ():
        if (child / "simulate_job").is_dir() or (child / "meta.json").is_file():
            shutil.rmtree(child)


def rows(results: Mapping[tuple[str, int], Mapping[str, Any]], test: str = "test") -> list[dict[str, Any]]:
    """Mean and sample standard deviation over seeds of each arm's test Dice at each site.

    Args:
        results: (arm, seed) -> ``result.json``.
        test: ``test`` for the selected model, ``test_last`` for the last aggregate.

    Returns:
        One row an arm and site: ``arm, site, n_seeds, dice_mean, dice_std, n_cases``.
    """
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for (arm, _), result in results.items():
        for site, scores in result.get(test, {}).items():
            if scores.get("n_cases"):
                found.setdefault((arm, site), []).append((scores["dice_mean"], int(scores["n_cases"])))
    table = []
    for (arm, site), scores in found.items():
        dice = [score for score, _ in scores]
        spread = stdev(dice) if len(dice) > 1 else 0.0
        row = {"arm": arm, "site": site, "n_seeds": len(dice), "dice_mean": mean(dice), "dice_std": spread}
        table.append({**row, "n_cases": scores[0][1]})
    return table
