"""A stage of an arm: a federated job that pre-trains an encoder without labels."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.contract import Pretraining, pretraining
from fedmed.errors import JobError
from fedmed.jobs.job import Job
from fedmed.settings.site import SiteConfig
from research.runner.encoder_step import EncoderStep
from research.runner.experiment_data import ExperimentData, Positive, stage_job
from research.runner.hospital_data import HospitalData, RoundBudget
from research.runner.hospital_images import ImageCase, node_images
from research.runner.job_step import run_folder
from research.runner.site_lists import CENTRALISED, pooled_site, with_list
from research.runner.stages import Place, Stage, StageStep

log = logging.getLogger(__name__)
OLD_NAMES = {"pooled": "centralised", "alone": "local"}
JOB_NAME = "pretraining"  # the same for all, so that equal arms of two tables are one run


class EncoderTraining(Stage):
    """Pre-training of an encoder; every hospital is a node unless the arm says otherwise.

    Attributes:
        nodes: ``federated``; ``centralised``: all images at one node; ``local``: each hospital by itself, and the
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

    nodes: Literal["federated", "centralised", "local"] = "federated"
    rounds: Positive = 1
    split: Literal[1, 2] = 1
    sizes: list[Annotated[float, Field(gt=0, le=1)]] = []
    skew: list[Literal["healthy", "diseased"]] = []
    overrides: dict[str, Any] = {}
    job: dict[str, Any] = {}

    @field_validator("nodes", mode="before")
    @classmethod
    def _old_names(cls, nodes: Any) -> Any:
        if nodes in OLD_NAMES:
            log.warning("'nodes: %s' is written '%s' now", nodes, OLD_NAMES[nodes])
            return OLD_NAMES[nodes]
        return nodes

    def steps(self, place: Place, before: StageStep | None) -> list[StageStep]:
        data: HospitalData = place.data
        cases = self.node_cases(data, place.arm)
        images = {node: len(images_of) for node, images_of in cases.items()}
        sites = {node: self._site(node, images_of, place) for node, images_of in cases.items()}
        if self.nodes == "local":
            return [self._step(place, {node: sites[node]}, {node: images[node]}, node) for node in sites]
        if self.nodes == "centralised":
            sites = {CENTRALISED: pooled_site(list(sites.values()), ["unlabeled"], place.lists)}
            images = {CENTRALISED: sum(images.values())}
        return [self._step(place, sites, images)]

    def node_cases(self, data: HospitalData, arm: str) -> dict[str, list[ImageCase]]:
        """Images that each node pre-trains on: training images alone, their labels dropped where used.

        Raises:
            JobError: sizes or skew do not fit the number of hospitals, or a node is left without images.
        """
        nodes: dict[str, list[ImageCase]] = {}
        for key, values in (("sizes", self.sizes), ("skew", self.skew)):
            if values and len(values) != len(data.hospitals):
                raise JobError(f"arm '{arm}': '{key}' has {len(values)} entries for {len(data.hospitals)} hospitals")
        for place, (name, hospital) in enumerate(data.hospitals.items()):
            kind = self.skew[place] if self.skew else None
            size = self.sizes[place] if self.sizes else None
            nodes |= node_images(hospital, self.split, size, kind, data.healthy.get(name, []))
        if empty := [name for name, cases in nodes.items() if not cases]:
            raise JobError(f"arm '{arm}': the node '{empty[0]}' has no images; change its size or skew")
        return nodes

    def job_of(self, place: Place, nodes: Sequence[str]) -> Job:
        """The job of one seed and set of nodes."""
        data: HospitalData = place.data
        budget, rounds = data.budget, max(1, round(data.budget.rounds * self.rounds))
        given = {"bundle": data.bundle, **data.job, **self.job}
        given["method"] = _within_budget(given.get("method"), budget)
        shares = {
            setting: [max(1, round(share * rounds * budget.epochs)) for share in values]
            for setting, values in budget.shares.items()
        }
        overrides = {**shares, **data.overrides.get(_how(data).overlay, {}), **self.overrides}
        return stage_job(
            place.arm,
            given,
            name=JOB_NAME,
            sites=dict.fromkeys(nodes, "unsupervised"),
            rounds=rounds,
            epochs=budget.epochs,
            overlays=list(data.overlays),
            overrides={"unsupervised": overrides},
            seed=place.seed,
            select="last",
            evaluate=False,
            evaluate_last=False,
        )

    def _site(self, node: str, cases: Sequence[ImageCase], place: Place) -> SiteConfig:
        """A node's settings with the list of its images; labels are not in it."""
        hospital = node if self.split == 1 else node.rpartition("_")[0]
        config = replace(place.data.hospitals[hospital].config, site=node)
        return with_list(config, place.lists, {"unlabeled": [{"image": case.image} for case in cases]})

    def _step(
        self, place: Place, sites: Mapping[str, SiteConfig], images: Mapping[str, int], node: str = ""
    ) -> StageStep:
        job = self.job_of(place, list(sites))
        folder, prefix = run_folder(place, job, sites), _how(place.data).prefix
        return EncoderStep(job, sites, folder, node, images=images, prefix=prefix)


def _within_budget(method: Any, budget: RoundBudget) -> Any:
    """The method with arguments that name a number of the budget replaced by it."""
    if not isinstance(method, Mapping):
        return method
    # Rounds count from 0, so t > t_w are those from t_w on.
    numbers = {"rounds": budget.rounds, "warm_up": budget.warm_up}
    args = {key: numbers.get(str(value), value) for key, value in (method.get("args") or {}).items()}
    return {**method, "args": args}


def _how(data: HospitalData) -> Pretraining:
    overlay = pretraining(Bundle(data.bundle))
    if overlay is None:
        raise JobError(f"the bundle '{data.bundle}' cannot pre-train; its federation.yaml has no 'pretraining'")
    return overlay
