"""A site's own protection of what it sends: updates are clipped, and carry noise as the site's settings say."""

import logging
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.messages.values import map_tensors
from fedmed.privacy.allow_lists import Allowed
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.site")
Facts = dict[str, Any]  # for the ledger
Source = Callable[[int], bytes]  # how many bytes -> so many random ones
_NORM_BLOCK = 16_384  # elements whose norm is taken at once, so that it does not depend on the number of threads
_BLOCK = 1 << 20  # coordinates at once: 16 MiB of bits and numbers


class Protection:
    """Clips and adds noise.

    Args:
        allowed: the site's lists and settings.
    """

    def __init__(self, allowed: Allowed) -> None:
        self.allowed, self.site, self.privacy = allowed, allowed.site, allowed.privacy

    def clipped(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Facts]:
        """Return an update within the site's norm, and the norms before and after.

        Raises:
            PrivacyError: a value is not finite, so that there is no norm.
        """
        bound = self.privacy.clip_norm
        if bound is None:
            return dict(tensors), {}
        if bad := [name for name, tensor in tensors.items() if not all_finite(tensor)]:
            raise self.allowed.refusal(f"tensor '{bad[0]}' has values that are NaN or infinite", "clip_norm")
        norm = l2_norm(tensors)
        return scale_down(tensors, norm, bound), {"norm": norm, "norm_clipped": min(norm, bound)}

    def noised(self, tensors: Mapping[str, Tensor], round: int, std: float) -> tuple[dict[str, Tensor], Facts]:
        """Return a clipped update with noise of this standard deviation in every coordinate."""
        source = self._source(round, "noise")
        facts = {"noise_std": std} | ({"noise_seed": True} if self.privacy.noise_seed is not None else {})
        return {name: add_noise(tensor, std, source) for name, tensor in tensors.items()}, facts

    def noised_extras(self, extras: Mapping[str, Any], round: int) -> tuple[dict[str, Any], Facts]:
        """Return values beside the model with noise in their arrays; plain numbers get none.

        Raises:
            PrivacyError: numbers that would get no noise though they may be many, in lists, mappings or whole-number
                arrays.
        """
        std = self.privacy.extras_noise
        if std is None or not extras:
            return dict(extras), {}
        source = self._source(round, "extras noise")
        for name, value in extras.items():
            if _bare(value):
                raise self.allowed.refusal(f"'{name}' holds numbers outside of an array, without noise", "extras_noise")

        def noised(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                raise self.allowed.refusal(f"an array of {tensor.dtype} cannot carry noise", "extras_noise")
            return add_noise(tensor, std, source)

        return map_tensors(extras, noised), {"extras_noise": std}

    def _source(self, round: int, purpose: str) -> Source:
        seed, site = self.privacy.noise_seed, self.site
        if seed is None:
            return system_source()
        log.warning(
            "%s: 'privacy.noise_seed' is set in %s: whoever knows it can subtract the noise. It protects NOTHING and "
            "is for experiments only",
            site.site,
            site.source,
        )
        return seeded_source(derive_seed(seed, site.site, round, purpose))


def _bare(value: Any, inside: bool = False) -> bool:
    """Whether there are numbers that get no noise though they may be many."""
    if isinstance(value, Mapping | list | tuple):
        return any(_bare(item, True) for item in (value.values() if isinstance(value, Mapping) else value))
    return inside and type(value) in (int, float)


def l2_norm(tensors: Mapping[str, Tensor]) -> float:
    """Return the L2 norm over all elements of all floating-point tensors, in float64."""
    chosen = (tensor.detach().reshape(-1) for _, tensor in sorted(tensors.items()) if tensor.is_floating_point())
    blocks = (block for tensor in chosen for block in tensor.split(_NORM_BLOCK))
    return math.hypot(*(float(torch.linalg.vector_norm(block, dtype=torch.float64)) for block in blocks))


def scale_down(tensors: Mapping[str, Tensor], norm: float, bound: float) -> dict[str, Tensor]:
    """Bring an update of L2 norm ``norm`` within ``bound``: one factor for all floating-point tensors.

    Its direction stays, integer counters too, and an update within the bound is not touched.
    """
    if norm <= bound:
        return dict(tensors)
    factor = bound / norm
    return {name: tensor * factor if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def system_source() -> Source:
    """The operating system's cryptographic generator.

    ``torch.Generator`` would not do: on the CPU it takes 32 bits of its seed, so that whoever knows a few coordinates
    of an update could try all seeds and subtract the noise from the others.
    """
    return os.urandom


def seeded_source(seed: int) -> Source:
    """Bytes that the seed determines: for tests and repeatable experiments, no protection."""
    return np.random.Generator(np.random.Philox(seed)).bytes


def add_noise(tensor: Tensor, std: float, source: Source) -> Tensor:
    """Return ``tensor`` plus independent Gaussian noise, in its dtype and shape.

    Sum and noise are float64 and rounded once, to the tensor's dtype: the last bits of a float64 sum can tell which
    numbers a generator is able to produce (Mironov 2012), those of a rounded float32 do not.

    Args:
        tensor: floating point, on the CPU.
        std: standard deviation, 0 or more.
        source: where random bits come from, 8 bytes a coordinate.
    """
    flat = tensor.detach().reshape(-1)
    noised = torch.empty_like(flat)
    for start in range(0, flat.numel(), _BLOCK):
        block = flat[start : start + _BLOCK]
        noised[start : start + _BLOCK] = block.double() + std * gaussian(block.numel(), source)
    return noised.reshape(tensor.shape)


def gaussian(n: int, source: Source) -> Tensor:
    """Return ``n`` independent standard normal numbers, float64, at most 8.2 from 0."""
    bits = np.frombuffer(source(8 * n), dtype="<u8") >> np.uint64(12)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-52  # exact; in (0, 1), symmetric about 1/2
    numbers: Tensor = torch.special.ndtri(torch.from_numpy(uniform))
    return numbers
