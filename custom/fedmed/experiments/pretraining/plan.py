"""From an arm to the federated jobs that pre-train its encoders."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedmed.errors import JobError
from fedmed.experiments.federation import POOL
from fedmed.experiments.pretraining.arms import FEDERATED, UNTRAINED, Arm
from fedmed.experiments.pretraining.cases import Case, Hospital
from fedmed.experiments.pretraining.description import Description
from fedmed.experiments.pretraining.hospitals import node_cases
from fedmed.experiments.runs import Run, named_run
from fedmed.experiments.sites import write_list
from fedmed.jobs.job import Job
from fedmed.jobs.study import Study
from fedmed.settings.site import SiteConfig

JOB_NAME = "pretraining"  # the same for all, so that equal arms of two tables are one run
OWN = {"name", "sites", "rounds", "steps", "epochs", "bundle", "overlays", "method", "overrides", "seed"}
OWN |= {"select", "evaluate", "evaluate_last"}


@dataclass(frozen=True)
class Pretraining:
    """One encoder to be made.

    Attributes:
        run: its job; None for an encoder that is not pre-trained.
        seed: of the run, and of the first weights.
        node: the hospital of a local encoder; empty otherwise.
        images: node -> images that it learns from, in the arm's order.
    """

    run: Run | None
    seed: int
    node: str
    images: Mapping[str, int]


def pretrainings(
    arm: Arm, description: Description, hospitals: Mapping[str, Hospital], seed: int, folder: Path
) -> list[Pretraining]:
    """The encoders of one arm and seed: one, or one a hospital where each learns by itself.

    Args:
        arm, description, hospitals: what to run on which images.
        seed: of the run.
        folder: of all runs; the nodes' lists are written below it.

    Raises:
        JobError, SiteConfigError, DataError: the arm cannot be run on this data.
    """
    if arm.method in UNTRAINED:
        return [Pretraining(None, seed, "", {})]
    cases = node_cases(description, hospitals, arm)
    sites = {node: _site(node, own, description, hospitals, folder / "lists") for node, own in cases.items()}
    counts = {node: len(own) for node, own in cases.items()}
    if arm.method == "local":
        return [
            Pretraining(_run(arm, description, {node: sites[node]}, seed, folder), seed, node, {node: counts[node]})
            for node in sites
        ]
    if arm.method == "oracle":
        sites, counts = {POOL: _pool(cases, sites, folder / "lists")}, {POOL: sum(counts.values())}
    return [Pretraining(_run(arm, description, sites, seed, folder), seed, "", counts)]


def job_of(arm: Arm, description: Description, nodes: Sequence[str], seed: int) -> Job:
    """The job of one arm, seed and set of nodes.

    Raises:
        JobError: the arm's or the description's ``job`` sets what an arm says in its own words.
    """
    settings = {**description.job, **arm.job}
    known = set(Study.model_fields) - OWN
    if unknown := sorted(set(settings) - known):
        raise JobError(f"arm '{arm.name}': 'job' may not set '{unknown[0]}'; it may set: {', '.join(sorted(known))}")
    budget, rounds = description.budget, max(1, round(description.budget.rounds * arm.rounds))
    milestones = [max(1, round(share * rounds * budget.epochs)) for share in budget.milestones]
    overrides = {"milestones": milestones, **description.overrides.get("pretrain", {}), **arm.overrides}
    return Job.of(
        {
            "name": JOB_NAME,
            "sites": dict.fromkeys(nodes, "unsupervised"),
            "rounds": rounds,
            "epochs": budget.epochs,
            "bundle": description.bundle,
            "overlays": list(description.overlays),
            "method": _method(arm, budget.warm_up),
            "overrides": {"unsupervised": overrides},
            "seed": seed,
            "select": "last",
            "evaluate": False,
            **settings,
        }
    )


def _method(arm: Arm, warm_up: int) -> dict[str, object]:
    adaptive, exchanged = FEDERATED.get(arm.method, (False, False))
    if not adaptive and not exchanged:
        return {"path": "fedmed.methods.fedavg_moco.FedAvgMoCo"}
    # Rounds count from 0, so t > t_w are those from t_w on.
    args = {"adaptive": adaptive, "exchange_from": warm_up if exchanged else None}
    return {"path": "fedmed.methods.fedmoco.FedMoCo", "args": args}


def _run(arm: Arm, description: Description, sites: Mapping[str, SiteConfig], seed: int, folder: Path) -> Run:
    return named_run(arm.name, seed, job_of(arm, description, list(sites), seed), sites, folder, description.name)


def _site(
    node: str, cases: Sequence[Case], description: Description, hospitals: Mapping[str, Hospital], folder: Path
) -> SiteConfig:
    """A node's settings with the list of its images; labels are not in it."""
    config = hospitals[node if node in hospitals else node.rsplit("_", 1)[0]].config
    lists = {"unlabeled": [{"image": case.image} for case in cases]}
    return replace(config, site=node, datalist=write_list(folder, node, lists))


def _pool(cases: Mapping[str, Sequence[Case]], sites: Mapping[str, SiteConfig], folder: Path) -> SiteConfig:
    """One site that holds the images of all nodes; the bound that federated pre-training is compared with."""
    roots = {node: config.data_root.resolve() for node, config in sites.items()}
    root = Path(os.path.commonpath(list(roots.values())))
    images = [{"image": str(roots[node].relative_to(root) / c.image)} for node, own in cases.items() for c in own]
    first = next(iter(sites.values()))
    return replace(first, site=POOL, data_root=root, datalist=write_list(folder, POOL, {"unlabeled": images}))


def images_of(config: SiteConfig) -> list[str]:
    """Absolute paths of a node's images."""
    lists = json.loads(config.datalist.read_text(encoding="utf-8"))
    return [str(config.data_root / entry["image"]) for entry in lists["unlabeled"]]
