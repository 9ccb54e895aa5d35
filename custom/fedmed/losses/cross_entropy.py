"""Weights of positives for binary cross-entropy with rare labels (Markert 2022, Eq. 4.21-4.22)."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from fedmed.errors import FedMedError

log = logging.getLogger("fedmed.losses")


def pos_weight_from_counts(
    positives: Sequence[int], samples: int, cap: float = 1000.0, names: Sequence[str] = ()
) -> Tensor:
    """Return negatives / positives of each label, for ``torch.nn.BCEWithLogitsLoss(pos_weight=...)``.

    A label without positives counts as having one; weights above ``cap`` are cut. A warning says so, and which labels
    are in no sample or in all.

    Args:
        positives: samples in which each of the J labels is present, in the training data.
        samples: training samples.
        cap: largest weight.
        names: of the labels, for warnings; their places without.

    Returns:
        float32 (J,).

    Raises:
        FedMedError: a count is negative or above ``samples``.
    """
    counts = torch.as_tensor(positives, dtype=torch.float64)
    if samples < 1 or ((counts < 0) | (counts > samples)).any():
        raise FedMedError(f"counts of positives {list(positives)} do not fit {samples} samples; count them again")
    weights = (samples - counts) / counts.clamp(min=1)
    called: list[str | int] = [*names] or [*range(len(counts))]
    for which, what in (
        (weights > cap, f"are cut to {cap:g}: they are too rare to be learned"),
        (counts == 0, "count one positive, for no sample shows them: only their absence is learned here"),
        (counts == samples, "are 0, for all samples show them: nothing of them is learned here"),
    ):
        if labels := [name for name, true in zip(called, which.tolist(), strict=True) if true]:
            log.warning("weights of positives of labels %s %s", labels, what)
    return weights.clamp(max=cap).float()
