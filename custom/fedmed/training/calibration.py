"""Temperature scaling: calibrated probabilities (Guo et al. 2017, arXiv 1706.04599), and outputs collected for it."""

import logging
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import scipy  # loads its parts when they are used
import torch
from ignite.engine import Engine, Events
from ignite.handlers import EpochOutputStore
from numpy.typing import ArrayLike
from torch import Tensor

from fedmed.data.listed_images import plain
from fedmed.errors import DataError, FedMedError
from fedmed.training.label_counts import probabilities

log = logging.getLogger("fedmed.site")
METRIC = "val_temperature"
COLDEST, HOTTEST = 0.05, 20.0
MIN_CASES = 10


class Collected(EpochOutputStore):
    """Logits and labels of all cases of an evaluator's run, on the CPU, in the order in which they came.

    The evaluator's output is a batch or a list of cases with ``pred`` (C,), the network's logits, and ``label``, the
    index of the class.
    """

    def __init__(self) -> None:
        super().__init__(_logits_and_labels)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def logits(self) -> Tensor:
        """float32 (n, C)."""
        return torch.cat([logits for logits, _ in self.data]) if self.data else torch.zeros(0, 0)

    @property
    def labels(self) -> Tensor:
        """int64 (n,)."""
        return torch.cat([labels for _, labels in self.data]) if self.data else torch.zeros(0, dtype=torch.int64)

    def probabilities(self, network: Any) -> Tensor:
        """Return float64 (n, C), see :func:`fedmed.training.label_counts.probabilities`.

        Double precision keeps the order of cases of which the model is almost certain. NaN or infinite logits are a
        DataError, which names the number of the first such case.
        """
        logits = self.logits
        if bad := torch.nonzero(~torch.isfinite(logits).all(dim=1)).flatten().tolist():
            raise DataError(
                f"the model's output is NaN or infinite for {len(bad)} of {len(logits)} cases, first for case number "
                f"{bad[0]}; use another checkpoint, or correct the images if only a few are affected"
            )
        device = next(network.parameters()).device
        with torch.no_grad():
            return probabilities(network, logits.double().to(device)).cpu()


def _logits_and_labels(output: Any) -> tuple[Tensor, Tensor]:
    if isinstance(output, Mapping):
        logits, labels = plain(output["pred"]), torch.as_tensor(output["label"])
    else:
        logits = torch.stack([plain(case["pred"]) for case in output])
        labels = torch.tensor([case["label"] for case in output])
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise FedMedError(
            f"classification: logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; use (B, C) and (B,)"
        )
    return logits.detach().cpu().float(), labels.cpu().long()


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return T > 0 that minimises the mean cross-entropy of softmax(logits / T).

    The cross-entropy is convex in 1/T, so the zero of its derivative is the minimum. Brent's method finds it to the
    last bits: no step size, and the same result on every machine.

    Args:
        logits: (n, C), not scaled by any temperature.
        labels: (n,) int in [0, C).

    Returns:
        T in [0.05, 20]; 1.0, with a line in the log, for fewer than 10 cases or cases of one class only.

    Raises:
        DataError: NaN or infinite logits.
    """
    values, truth = logits.detach().cpu().double().numpy(), labels.cpu().numpy()
    if not np.isfinite(values).all():
        raise DataError("calibration: logits are NaN or infinite; the model is unusable, use another checkpoint")
    if len(truth) < MIN_CASES or len(np.unique(truth)) < 2:
        log.info("%d cases of %d classes are too few for a temperature; it stays 1", len(truth), len(np.unique(truth)))
        return 1.0
    if _slope(1 / HOTTEST, values, truth) >= 0:
        return HOTTEST
    if _slope(1 / COLDEST, values, truth) <= 0:
        return COLDEST
    from scipy.optimize import brentq  # takes long to load

    return 1 / brentq(_slope, 1 / HOTTEST, 1 / COLDEST, args=(values, truth), xtol=1e-12)


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Return the mean distance of confidence and accuracy over bins of equal width (Guo et al. 2017, Eq. 3).

    MONAI's ``CalibrationErrorMetric`` is that of a segmentation: it bins each class over the voxels of one image.

    Args:
        probabilities: (n, C), rows that sum to 1; the confidence is the largest of a row.
        labels: (n,) int in [0, C).
        bins: each holds the confidences above its lower edge up to its upper one.

    Returns:
        0 (calibrated) to 1.

    Raises:
        FedMedError: no cases, or no bins.
    """
    values, truth = np.asarray(probabilities, np.float64), np.asarray(labels)
    if bins < 1 or not len(truth):
        raise FedMedError(f"calibration error: {len(truth)} cases and {bins} bins; at least one of each is needed")
    confidence, right = values.max(axis=1), values.argmax(axis=1) == truth
    edges = np.linspace(0, 1, bins + 1)
    places = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    gaps = np.bincount(places, weights=right - confidence, minlength=bins)  # |B| (acc - conf)
    return float(np.abs(gaps).sum() / len(truth))


def brier_score(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean squared error of the probabilities (Brier 1950, Monthly Weather Review 78, 1-3, Eq. 2).

    Args:
        probabilities: (n, C), rows that sum to 1.
        labels: (n,) int in [0, C).

    Returns:
        Mean over cases of the sum over classes: 0 (certain and right) to 2 (certain and wrong); of two classes twice
        the mean squared error of either.

    Raises:
        FedMedError: no cases.
    """
    values, truth = np.asarray(probabilities, np.float64), np.asarray(labels)
    if not len(truth):
        raise FedMedError("Brier score: no cases; at least one is needed")
    return float(np.square(values - np.eye(values.shape[1])[truth]).sum(axis=1).mean())


class TemperatureHandler:
    """Fits a temperature to the logits of a validation; give it to an evaluator among its additional metrics.

    The output's ``pred`` must be the network's logits, not divided by the temperature that the network already has:
    otherwise the new temperature would be fitted on top of the old one.
    """

    def __init__(self) -> None:
        self.collected = Collected()

    def attach(self, engine: Engine, name: str = METRIC) -> None:
        """Add to an evaluator; the temperature is ``engine.state.metrics[name]``."""
        self.collected.attach(engine)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._finish, name)

    def _finish(self, engine: Engine, name: str) -> None:
        engine.state.metrics[name] = fit_temperature(self.collected.logits, self.collected.labels)


def mean_temperature(metrics: Mapping[str, Mapping[str, float]], sites: Collection[str]) -> float | None:
    """Return the mean over the labelled sites that sent a possible temperature, in [0.05, 20]; None if none did."""
    sent = [metrics[site].get(METRIC, math.nan) for site in sorted(sites) if site in metrics]
    valid = [value for value in sent if COLDEST <= value <= HOTTEST]
    return math.fsum(valid) / len(valid) if valid else None


def calibrated(model: Mapping[str, Tensor], name: str | None, temperature: float | None) -> Mapping[str, Tensor]:
    """Return the model with its tensor ``name``, the bundle's ``calibration``, set to a temperature above 0.

    It is the same where either is missing. Training goes on with the uncalibrated model.
    """
    if name is None or name not in model or temperature is None:
        return model
    return {**model, name: torch.full_like(model[name], temperature)}


def _slope(inverse: float, logits: np.ndarray, labels: np.ndarray) -> float:
    """Derivative of the mean cross-entropy by 1/T: mean of E_p[z] - z_label."""
    expected = (scipy.special.softmax(inverse * logits, axis=1) * logits).sum(axis=1)
    return float((expected - np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]).mean())
