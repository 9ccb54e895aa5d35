"""Weights for cross-entropy with rare labels, of the counts of a training list."""

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

    Markert 2022, Eq. 4.21-4.22.

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
    of = "positives of labels"
    _warn(of, names, weights > cap, f"are cut to {cap:g}: they are too rare to be learned")
    _warn(of, names, counts == 0, "count one positive, for no sample shows them: only their absence is learned here")
    _warn(of, names, counts == samples, "are 0, for all samples show them: nothing of them is learned here")
    return weights.clamp(max=cap).float()


def class_weights_from_counts(counts: Sequence[int], cap: float = 1000.0, names: Sequence[str] = ()) -> Tensor:
    """Return median / count of each class, for ``torch.nn.functional.cross_entropy(weight=...)``.

    Median frequency balancing (Eigen and Fergus 2015, arXiv 1411.4734, section 6.3.2). The median is over the classes
    that occur. One that does not has weight 0, and nothing of it is learned: a warning says so, and which weights above
    ``cap`` are cut.

    Args:
        counts: samples of each of the C classes in the training data, of which each sample has one.
        cap: largest weight.
        names: of the classes, for warnings; their places without.

    Returns:
        float32 (C,).

    Raises:
        FedMedError: a count is negative, or all are 0.
    """
    sizes = torch.as_tensor(counts, dtype=torch.float64)
    if (sizes < 0).any() or not (sizes > 0).any():
        raise FedMedError(f"counts of classes {list(counts)} are not those of a training list; count them again")
    median = sizes[sizes > 0].quantile(0.5)
    weights = torch.where(sizes > 0, median / sizes.clamp(min=1), 0.0)
    _warn("classes", names, weights > cap, f"are cut to {cap:g}: they are too rare to be learned")
    _warn("classes", names, sizes == 0, "are 0, for no sample is of them: nothing of them is learned here")
    return weights.clamp(max=cap).float()


def _warn(of: str, names: Sequence[str], which: Tensor, what: str) -> None:
    called: list[str | int] = [*names] or [*range(len(which))]
    if concerned := [name for name, true in zip(called, which.tolist(), strict=True) if true]:
        log.warning("weights of %s %s %s", of, concerned, what)
