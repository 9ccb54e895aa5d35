"""A stage of an arm: one federated job of a classifier, one site of which has labels, scored at every site."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from pydantic import model_validator

from research.runner.federated_training import FederatedTraining
from research.runner.federation_data import FederationData
from research.runner.job_step import JobStep
from research.runner.score_table import selected
from research.runner.sites_in_turn import LABELLED
from research.runner.stages import Place

OTHERS = "others"  # of ``train``: every site but the labelled one
INTERNAL, EXTERNAL = "internal", "external"  # lists: of the site whose labels were learned, and of the others


class FederatedClassification(FederatedTraining):
    """Federated training of a classifier, tested at all sites of the federation, of which one is called ``labelled``.

    ``train`` has an entry ``labelled``, and may have one, ``others``, for all other sites, however many the federation
    has; without it they are only tested. ``centralised: [labelled, others]`` pools the images of all sites.
    A score such as AUROC needs the images of a site together: the score table holds the probabilities of each.
    """

    @model_validator(mode="after")
    def _all_train_together(self) -> "FederatedClassification":
        if self.centralised and set(self.centralised) != {LABELLED, OTHERS}:
            raise ValueError(f"'centralised' must be [{LABELLED}, {OTHERS}]: all sites")
        if self.leave_one_out or not self.centralised and set(self.train) | {OTHERS} != {LABELLED, OTHERS}:
            raise ValueError(f"'train' must have a role for '{LABELLED}', may have one for '{OTHERS}', and no other")
        return self

    def among(self, data: FederationData) -> FederatedTraining:
        """The same for the sites of a federation, each with its role."""
        if self.centralised:
            return FederatedTraining.model_construct(**{**dict(self), "centralised": list(data.sites)})
        others = [site for site in data.sites if site != LABELLED] if OTHERS in self.train else []
        roles = {LABELLED: self.train[LABELLED], **{site: self.train[OTHERS] for site in others}}
        return FederatedTraining.model_construct(**{**dict(self), "train": roles})

    def lacking(self, data: FederationData) -> str | None:
        return self.among(data).lacking(data)

    def steps_of_turn(self, place: Place) -> list[JobStep]:
        names = place.data.sites
        tested = sorted(names, key=lambda site: names[site])  # so that a run of all is the same in every turn
        steps = self.among(place.data).steps_of_turn(replace(place, test=tested))
        return [ClassificationStep(**vars(step), labelled=names[LABELLED]) for step in steps]


@dataclass(frozen=True)
class ClassificationStep(JobStep):
    """A finished job whose test images are units with probabilities."""

    labelled: str = field(kw_only=True)  # the site whose labels all others do without

    def scores(self) -> pd.DataFrame | None:
        """Probabilities of every class, metric ``p_<class>``, and the true ``label`` of every test image.

        ``task`` is the site of the images, ``list`` is ``internal`` at the labelled one and ``external`` at the others,
        and ``protocol`` says whose labels were learned. Validation scores are left out: they are not of images.
        """
        scores = super().scores()
        if scores is None:
            return None
        images = selected(scores, list="test")
        internal = (images["site"] == self.labelled).to_numpy()
        lists = np.where(internal, INTERNAL, EXTERNAL)
        return images.assign(task=images["site"], list=lists, protocol=labels_of(self.labelled))


def labels_of(site: str) -> str:
    """The protocol of a site's labels, in words."""
    return f"labels of {site}"


def turn_of(labelled: str, sites: Sequence[str]) -> dict[str, str]:
    """The table's names of a federation's sites -> the sites, of which one is the labelled one."""
    return {LABELLED: labelled, **{site: site for site in sites if site != labelled}}
