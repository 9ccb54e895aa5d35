"""The temperature of a selected classifier: the mean of those that labelled sites found on their validation lists."""

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fedmed.engines.calibration import COLDEST, HOTTEST

METRIC = "val_temperature"


def mean_temperature(metrics: Mapping[str, Mapping[str, float]], sites: Collection[str]) -> float | None:
    """Return the mean over the labelled sites that sent a possible temperature, in [0.05, 20]; None if none did."""
    sent = [metrics[site].get(METRIC, math.nan) for site in sorted(sites) if site in metrics]
    valid = [value for value in sent if COLDEST <= value <= HOTTEST]
    return math.fsum(valid) / len(valid) if valid else None


def calibrated(model: Mapping[str, Tensor], name: str | None, temperature: float | None) -> Mapping[str, Tensor]:
    """Return the model with its tensor ``name`` set to a temperature; the same where either is missing.

    Training continues with the uncalibrated model, whose temperature does not change.

    Args:
        model: name -> tensor.
        name: the bundle's ``calibration``.
        temperature: above 0.
    """
    if name not in model or temperature is None:
        return model
    return {**model, name: torch.full_like(model[name], temperature)}
