"""The key encoder of momentum contrast: a slow copy of the query encoder (MoCo, He et al. 2020, Eq. 2)."""

import copy

import torch
from torch import nn


def key_encoder(network: nn.Module) -> nn.Module:
    """Return a copy without gradients, in train mode: BatchNorm uses each batch and keeps statistics of its own."""
    return copy.deepcopy(network).requires_grad_(False).train()


@torch.no_grad()
def momentum_update(key: nn.Module, query: nn.Module, momentum: float) -> None:
    """``θ_key ← m θ_key + (1 - m) θ_query`` for all parameters at once; buffers are left alone.

    torch's ``AveragedModel`` would overwrite the key encoder's BatchNorm statistics with those of the query encoder.

    Args:
        key: made by :func:`key_encoder` of ``query``, changed in place.
        query: the network that is trained.
        momentum: m in [0, 1).
    """
    torch._foreach_lerp_(list(key.parameters()), [p.detach() for p in query.parameters()], 1 - momentum)
