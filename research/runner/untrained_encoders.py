"""Stages of an arm in the place of a pre-trained encoder: first weights, or no network at all."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from research.runner.experiment_data import ExperimentData
from research.runner.hospital_data import HospitalData
from research.runner.stages import Place, Stage, StageStep

QUANTILES = torch.linspace(0.05, 0.95, 7)


@dataclass(frozen=True)
class UntrainedStep(StageStep):
    """Nothing to make, and a folder for what is trained on it."""

    path: Path
    change: Callable[[nn.Module], None] | None = None  # done to a network of first weights before it is trained

    @property
    def results(self) -> Path:
        """Folder of what is made on it."""
        return self.path

    def encoder(self) -> None:
        """None: the weights stay those of the seed."""


class RandomEncoder(Stage):
    """First weights of the seed: no pre-training."""

    needs: ClassVar[type[ExperimentData]] = HospitalData

    def steps(self, place: Place, before: StageStep | None) -> list[UntrainedStep]:
        return [UntrainedStep(place.runs / f"{place.data.name}-no-pretraining-{place.seed}")]


class GreyLevels(nn.Module):
    """Mean, standard deviation and seven quantiles (5 to 95 %) of images (B, 1, H, W) -> (B, 9).

    A hospital exposes, positions and prints the images of its sicker patients in another way. Where these nine numbers
    do as well as an encoder, a score does not say that the encoder sees disease.
    """

    features = 2 + len(QUANTILES)

    def forward(self, images: Tensor) -> Tensor:
        values = images.flatten(1).float()
        quantiles = torch.quantile(values, QUANTILES.to(values.device), dim=1).T
        return torch.cat([values.mean(1, keepdim=True), values.std(1, keepdim=True), quantiles], dim=1)


def read_grey_levels(network: Any) -> None:
    """Give a classifier :class:`GreyLevels` for an encoder, and a new layer of the same classes; in place."""
    like: nn.Linear = network.classifier
    network.encoder = GreyLevels()
    network.classifier = nn.Linear(GreyLevels.features, like.out_features, device=like.weight.device)


class GreyLevelEncoder(RandomEncoder):
    """A control without any network: a linear classifier on :class:`GreyLevels`."""

    def steps(self, place: Place, before: StageStep | None) -> list[UntrainedStep]:
        return [replace(step, change=read_grey_levels) for step in super().steps(place, before)]
