"""Tables of research/experiments, and the jobs of their arms."""

from functools import cache
from pathlib import Path

import pytest

from fedmed.bundles.bundle_parser import footprint
from fedmed.jobs import app_configs
from research.runner.continued_training import FILES
from research.runner.experiment_data import load_data
from research.runner.experiment_table import load_table
from research.runner.federated_training import FederatedTraining
from research.runner.judgement import judge
from research.runner.stages import Place

EXPERIMENTS = Path(__file__).resolve().parents[2] / "research/experiments"
PACKAGE_SAYS, SAID = app_configs._nothing_private, {}
ACCEPTED = set()  # studies, as text, that a bundle has accepted: tables have runs in common


@cache
def table_of(name):
    return load_table(EXPERIMENTS / f"{name}.yaml")


@cache
def data_of(name):
    return load_data(EXPERIMENTS / "data" / f"{name}.yaml")


def place_of(arm, data, test, seed=0):
    return Place(arm, seed, data, test, Path("nowhere"))


def jobs_of(table):
    """Arm -> the jobs of its stages, with the first assignment of sites; of sites alone that of the first."""
    data = data_of(table.data)
    table.check_data(data)
    turn, jobs = data.turns()[0], {}
    for arm in table.arms:
        jobs[arm.name] = []
        for stage in (stage for stage in arm.stages if isinstance(stage, FederatedTraining)):
            alone = {"local": [], "train": {stage.local[0]: "supervised"}} if stage.local else {}
            start = {"checkpoint": FILES["last"], "checkpoint_tensors": stage.takes} if hasattr(stage, "takes") else {}
            one = stage.model_copy(update={**alone, "job": {**stage.job, **start}})
            jobs[arm.name].append(one.job_of(place_of(arm.name, turn, table.test)))
    return jobs


def accepted(job):
    """Whether the bundle accepts a job; one that another table has too is looked at once."""
    text = job.study.model_dump_json()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_configs, "_nothing_private", nothing_private)
        if text not in ACCEPTED and app_configs.files(job):
            ACCEPTED.add(text)
    return text in ACCEPTED


def nothing_private(bundle, group):
    """What the package says, which builds the network to know it; of arms that train the same network, once."""
    network = footprint(bundle.parser().config, ["network"])
    key = str((bundle.name, network, bundle.federation.get("sharing"), group))
    if key not in SAID:
        SAID[key] = PACKAGE_SAYS(bundle, group)
    return SAID[key]


def check_runs(jobs, **differ):
    """The bundle accepts every job, and no two arms are one run.

    Args:
        jobs: arm -> the jobs of its stages.
        differ: arm -> what tells its run apart beside them.
    """
    texts = {arm: [job.study.model_dump_json() for job in stages] for arm, stages in jobs.items()}
    different = {text: job for arm, stages in jobs.items() for text, job in zip(texts[arm], stages, strict=True)}
    assert all(accepted(job) for job in different.values())
    assert len({(*text, str(differ.get(arm))) for arm, text in texts.items()}) == len(jobs), "two arms would be one run"


def differences(study, whole):
    """Names of the arguments of the method, algorithm and settings without labels that differ; all else is alike."""
    like = {"method": whole.method, "overrides": whole.overrides, "algorithm": whole.algorithm}
    assert study.model_copy(update=like) == whole
    args = {key for key, value in study.method.args.items() if value != whole.method.args[key]}
    settings, others = (one.overrides["unsupervised"] for one in (study, whole))
    settings = {key for key, value in settings.items() if value != others.get(key)}
    return args | settings | ({"algorithm"} if study.algorithm != whole.algorithm else set())


def verdicts(table, evidence, *wanted):
    """Claim -> verdict; of some claims, which are then judged without the others, or of all."""
    claims = [claim for claim in table.claims if not wanted or str(claim.id) in wanted]
    return {str(one.claim.id): str(one.verdict) for one in judge(claims, evidence)}
