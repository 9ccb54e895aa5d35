"""Memory that a training step of a bundle's network takes, from the shapes of what it keeps for its gradients.

The network runs on PyTorch's device ``meta``, whose tensors have shapes and no values, so this takes no memory and
hardly any time, whatever the patch. It is an estimate: a site's check measures a real step.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import initial_network

STATES = 4  # copies of the weights: themselves, their gradients, Adam's two moments
TRANSIENT = 1.5  # with gradients of activations and buffers of convolutions, times what is kept
FIXED = 2**30  # bytes of libraries and the device's own context


class NetworkMemory:
    """Memory of a network by the size of its patch.

    Args:
        bundle: with overlays and overrides; its network is built once, on the CPU.
    """

    def __init__(self, bundle: Bundle) -> None:
        network = initial_network(bundle.parser_without_site(device="cpu"), 0)
        self.weights = sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())
        self.network: nn.Module = network.to("meta").train()
        self.channels = _channels(bundle)
        self._known: dict[tuple[int, ...], int | None] = {}

    def needed(self, patch: Sequence[int], batch: int) -> float:
        """Bytes of a step with a batch; infinite where the network does not take such a patch."""
        kept = self.kept(tuple(patch))
        return math.inf if kept is None else FIXED + STATES * self.weights + TRANSIENT * batch * kept

    def kept(self, patch: tuple[int, ...]) -> int | None:
        """Bytes that one patch leaves for the gradients; None where the network does not take it."""
        if patch not in self._known:
            self._known[patch] = self._run(patch)
        return self._known[patch]

    @cached_property
    def _weights(self) -> set[int]:
        return {tensor.untyped_storage()._cdata for tensor in self.network.state_dict(keep_vars=True).values()}

    def _run(self, patch: tuple[int, ...]) -> int | None:
        seen: dict[int, Tensor] = {}  # tensors are held, so that no other takes their storage's place

        def pack(tensor: Tensor) -> Tensor:
            if (place := tensor.untyped_storage()._cdata) not in self._weights:
                seen.setdefault(place, tensor)
            return tensor

        # Two images: normalisation over a batch refuses one alone where a layer leaves a single value of each.
        images = torch.empty((2, self.channels, *patch), device="meta")
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                self.network(images)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            return None
        return sum(tensor.untyped_storage().nbytes() for tensor in seen.values()) // 2


def _channels(bundle: Bundle) -> int:
    """Channels of an image, as the bundle's metadata says; 1 where it does not."""
    inputs = (bundle.metadata.get("network_data_format") or {}).get("inputs") or {}
    said = (inputs.get("image") or {}).get("num_channels")
    return said if isinstance(said, int) else 1
