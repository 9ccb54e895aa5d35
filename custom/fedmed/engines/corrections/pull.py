"""The gradient of a squared distance to what a site received, which FedProx and FedDyn add."""

import torch
from torch import Tensor

BLOCK = 131_072  # numbers looked at together: a few blocks lie in a core's cache


def add_pull(gradient: Tensor, weights: Tensor, received: Tensor, strength: float) -> None:
    """Add ``strength · (weights - received)`` to ``gradient``, in place.

    On a CPU block by block, which changes no bit: the difference of a large layer as a whole would be new memory in
    each step, and to get that takes longer than the sums.

    Args:
        gradient, weights, received: of one shape, device and dtype.
    """
    tensors = (gradient, weights.detach(), received)
    if gradient.device.type != "cpu" or not all(tensor.is_contiguous() for tensor in tensors):
        gradient.add_(tensors[1] - received, alpha=strength)
        return
    difference = gradient.new_empty(min(BLOCK, gradient.numel()))
    for own, here, there in zip(*(tensor.view(-1).split(BLOCK) for tensor in tensors), strict=True):
        own.add_(torch.sub(here, there, out=difference[: own.numel()]), alpha=strength)
