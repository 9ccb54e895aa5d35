"""A link of a chain: a federated job that pre-trains an encoder without labels."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fedmed.bundles.load import Bundle
from fedmed.bundles.pretraining import Pretraining, pretraining
from fedmed.errors import JobError
from fedmed.experiments.chain import ChainLink, ChainStep, Place
from fedmed.experiments.encoder_step import EncoderStep
from fedmed.experiments.experiment_data import ExperimentData
from fedmed.experiments.federation_data import POOL
from fedmed.experiments.hospital_data import HospitalData, Positive, RoundBudget
from fedmed.experiments.hospital_images import ImageCase, node_images
from fedmed.experiments.job_of_link import LinkJob, link_job
from fedmed.experiments.job_run import named_run
from fedmed.experiments.site_lists import write_list
from fedmed.settings.site import SiteConfig

JOB_NAME = "pretraining"  # the same for all, so that equal arms of two tables are one run


class EncoderTraining(ChainLink):
    """Pre-training of an encoder; every hospital is a node unless the arm says otherwise.

    Attributes:
        nodes: ``federated``; ``pooled``: all images at one made-up node; ``alone``: each hospital by itself, and the
            arm is the mean of them.
        rounds: multiple of the budget's T.
        split: nodes that each hospital becomes, of different patients.
        sizes: share of each hospital's training images; empty = all.
        skew: ``healthy`` or ``diseased`` for each hospital: only such images; empty = all.
        overrides: overridable settings of the bundle.
        job: further settings of the job, such as its method. A method's argument that names a number of the budget, as
            in ``exchange_from: warm_up``, gets that number.
    """

    needs: ClassVar[type[ExperimentData]] = HospitalData

    nodes: Literal["federated", "pooled", "alone"] = "federated"
    rounds: Positive = 1
    split: Literal[1, 2] = 1
    sizes: list[Annotated[float, Field(gt=0, le=1)]] = []
    skew: list[Literal["healthy", "diseased"]] = []
    overrides: dict[str, Any] = {}
    job: dict[str, Any] = {}

    def steps(self, place: Place, before: ChainStep | None) -> list[ChainStep]:
        data: HospitalData = place.data
        cases = self.node_cases(data, place.arm)
        lists = place.runs / "lists"
        sites = {node: _site(node, own, data, lists) for node, own in cases.items()}
        counts = {node: len(own) for node, own in cases.items()}
        if self.nodes == "alone":
            return [self._step(place, {node: sites[node]}, {node: counts[node]}, node) for node in sites]
        if self.nodes == "pooled":
            sites, counts = {POOL: _pool(cases, sites, lists)}, {POOL: sum(counts.values())}
        return [self._step(place, sites, counts)]

    def node_cases(self, data: HospitalData, arm: str) -> dict[str, list[ImageCase]]:
        """Images that each node pre-trains on: training images alone, their labels dropped where used.

        Raises:
            JobError: sizes or skew do not fit the number of hospitals, or a node is left without images.
        """
        names, nodes = list(data.hospitals), {}
        for key, values in (("sizes", self.sizes), ("skew", self.skew)):
            if values and len(values) != len(names):
                raise JobError(f"arm '{arm}': '{key}' has {len(values)} entries for {len(names)} hospitals")
        for place, hospital in enumerate(data.hospitals.values()):
            kind = self.skew[place] if self.skew else None
            size = self.sizes[place] if self.sizes else None
            nodes |= node_images(hospital, self.split, size, kind, data.healthy.get(hospital.name, []))
        if empty := [name for name, cases in nodes.items() if not cases]:
            raise JobError(f"arm '{arm}': the node '{empty[0]}' has no images; change its size or skew")
        return nodes

    def link_job(self, place: Place, nodes: Sequence[str]) -> LinkJob:
        """The job of one seed and set of nodes."""
        data: HospitalData = place.data
        budget, rounds = data.budget, max(1, round(data.budget.rounds * self.rounds))
        given = {"bundle": data.bundle, **data.job, **self.job}
        given["method"] = _within_budget(given.get("method"), budget)
        shares = {
            setting: [max(1, round(share * rounds * budget.epochs)) for share in values]
            for setting, values in budget.shares.items()
        }
        return link_job(
            place.arm,
            given,
            name=JOB_NAME,
            sites=dict.fromkeys(nodes, "unsupervised"),
            rounds=rounds,
            epochs=budget.epochs,
            overlays=list(data.overlays),
            overrides={"unsupervised": {**shares, **data.overrides.get("pretrain", {}), **self.overrides}},
            seed=place.seed,
            select="last",
            evaluate=False,
            evaluate_last=False,
        )

    def _step(
        self, place: Place, sites: Mapping[str, SiteConfig], images: Mapping[str, int], node: str = ""
    ) -> ChainStep:
        run = named_run(self.link_job(place, list(sites)), sites, place.runs, place.data.name)
        return EncoderStep(run, images, _how(place.data.bundle).prefix, node)


def _within_budget(method: Any, budget: RoundBudget) -> Any:
    """The method with arguments that name a number of the budget replaced by it."""
    if not isinstance(method, Mapping):
        return method
    # Rounds count from 0, so t > t_w are those from t_w on.
    named = {key: value for key, value in dict(method.get("args") or {}).items() if value in ("rounds", "warm_up")}
    return {**method, "args": {**dict(method.get("args") or {}), **{k: getattr(budget, v) for k, v in named.items()}}}


def _how(bundle: str) -> Pretraining:
    found = pretraining(Bundle(bundle))
    if found is None:
        raise JobError(f"the bundle '{bundle}' cannot pre-train; its federation.yaml has no 'pretraining'")
    return found


def _site(node: str, cases: Sequence[ImageCase], data: HospitalData, folder: Path) -> SiteConfig:
    """A node's settings with the list of its images; labels are not in it."""
    config = data.hospitals[node if node in data.hospitals else node.rsplit("_", 1)[0]].config
    lists = {"unlabeled": [{"image": case.image} for case in cases]}
    return replace(config, site=node, datalist=write_list(folder, node, lists))


def _pool(cases: Mapping[str, Sequence[ImageCase]], sites: Mapping[str, SiteConfig], folder: Path) -> SiteConfig:
    """One site that holds the images of all nodes; the bound that federated pre-training is compared with."""
    roots = {node: config.data_root.resolve() for node, config in sites.items()}
    root = Path(os.path.commonpath(list(roots.values())))
    images = [{"image": str(roots[node].relative_to(root) / c.image)} for node, own in cases.items() for c in own]
    first = next(iter(sites.values()))
    return replace(first, site=POOL, data_root=root, datalist=write_list(folder, POOL, {"unlabeled": images}))
