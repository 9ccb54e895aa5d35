"""What a site's model and models of other sites say of the same images (Jeong et al. 2021, arXiv 2006.12097)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def helper_divergence(logits: Tensor, helpers: Tensor) -> Tensor:
    """``mean_h KL(p_h || p)`` of each image, (B,); 0 without helpers.

    Args:
        logits: (B, C) of the site's own model.
        helpers: probabilities (H, B, C), constant.
    """
    if not len(helpers):
        return logits.new_zeros(len(logits))
    own = logits.log_softmax(dim=1).expand_as(helpers)
    return F.kl_div(own, helpers, reduction="none").sum(dim=2).mean(dim=0)


def vote(own: Tensor, helpers: Tensor) -> Tensor:
    """The class (B,) that most models name, of equal numbers the first.

    Args:
        own: logits or probabilities (B, C).
        helpers: the same of the helpers, (H, B, C).
    """
    named = torch.cat([own[None], helpers]).argmax(dim=2)
    return F.one_hot(named, own.shape[1]).sum(dim=0).argmax(dim=1)


def helped_loss(
    weak: Tensor, strong: Tensor, helpers: Tensor, classes: Tensor, counts: Tensor, agree: float, learn: float
) -> Tensor:
    """``agree · mean_h KL(p_h || p) + learn · CE(vote, p_strong)``, mean over the images that count; 0 without any.

    Args:
        weak, strong: logits (B, C) of the image as it came and of its strong view.
        helpers: see :func:`helper_divergence`.
        classes: votes (B,).
        counts: (B,) bool.
        agree, learn: λ_i and λ_a.
    """
    terms = agree * helper_divergence(weak, helpers) + learn * F.cross_entropy(strong, classes, reduction="none")
    return (terms * counts).sum() / counts.sum().clamp(min=1)
