"""How much a reader's look at a scan promises: how unsure the model is, and how easily it changes its mind."""

import math

import torch
from torch import Tensor

from fedmed.errors import FedMedError

SUM_TOLERANCE = 1e-3  # half precision keeps three digits
ONE_VOXEL = 1.0


def predictive_uncertainty(p: Tensor, together: bool = False) -> float:
    """Mean entropy of a prediction, from 0 (every value is 0 or 1) to 1 (nothing is known).

    Each voxel's entropy is divided by the largest that is possible. One foreground channel and several labels that
    may hold together give the binary entropy in bits of each; exclusive classes give the entropy over the classes,
    over ``log C``. With two exclusive channels both are the same.

    Args:
        p: probabilities in [0, 1]: (C, X, Y, ...) of a segmentation, (C,) of a classification. One channel is the
            probability of the foreground. Classes are exclusive (softmax, not sigmoid) if channels sum to 1 everywhere.
        together: whether labels are known to hold together: the probabilities of a few may sum to 1 by chance.

    Raises:
        FedMedError: empty, not finite, or outside [0, 1].
    """
    p = _checked(p)
    if not together and _exclusive(p):
        return float(torch.special.entr(p).sum(0).mean() / math.log(len(p)))
    return float((torch.special.entr(p) + torch.special.entr(1 - p)).mean() / math.log(2))


def view_disagreement(p: Tensor, q: Tensor, together: bool = False) -> float:
    """How far two predictions of one image are apart, from 0 (equal) to 1.

    Of a segmentation it is ``1 - (2 Σpq + 1) / (Σp² + Σq² + 1)`` over the foreground: one minus soft Dice. A mean of
    ``|p - q|`` over the volume would rank scans by the size of their lesions; relative to what is found, a scan whose
    one small lesion vanishes under the augmentation comes first. Squares keep a hundred thousand background voxels of
    probability 0.01 from counting like a lesion. The 1 is one sure voxel: two views in which nothing is found agree
    (0), where soft Dice itself is 0/0.

    Of a classification it is the total variation ``½ Σ|p - q|``; of labels that may hold together, the mean
    ``|p - q|``.

    Args:
        p: as in :func:`predictive_uncertainty`: the prediction of the image as it is. Channel 0 of exclusive classes
            with spatial axes is the background.
        q: the prediction of the augmented image, the shape of ``p``.
        together: as in :func:`predictive_uncertainty`.

    Raises:
        FedMedError: different shapes, empty, not finite, or outside [0, 1].
    """
    if p.shape != q.shape:
        raise FedMedError(f"two views of one image: predictions of shape {tuple(p.shape)} and {tuple(q.shape)}")
    p, q = _checked(p), _checked(q)
    one_true = not together and _exclusive(p)
    if p.ndim == 1:
        difference = (p - q).abs()
        return float(difference.sum() / 2 if one_true else difference.mean())
    if one_true:
        p, q = p[1:], q[1:]
    common = 2 * (p * q).sum() + ONE_VOXEL
    return float(1 - common / (p.square().sum() + q.square().sum() + ONE_VOXEL))


def _checked(p: Tensor) -> Tensor:
    if p.ndim == 0 or p.numel() == 0:
        raise FedMedError(f"probabilities have shape {tuple(p.shape)}; (C, ...) with at least one value is needed")
    p = p.detach().to(torch.float64).cpu()  # sums over millions of voxels
    if not bool(torch.isfinite(p).all()) or p.min() < 0 or p.max() > 1 + SUM_TOLERANCE:
        raise FedMedError("probabilities are not all finite and in [0, 1]; does the bundle's inferer return logits?")
    return p.clamp(max=1)


def _exclusive(p: Tensor) -> bool:
    return len(p) > 1 and bool(((p.sum(0) - 1).abs() < SUM_TOLERANCE).all())
