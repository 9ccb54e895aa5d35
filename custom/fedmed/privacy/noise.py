"""The Gaussian mechanism: a bound on an update's norm, and noise from a source that nobody can guess."""

import math
import os
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

Source = Callable[[int], bytes]  # how many bytes -> so many random ones
_NORM_BLOCK = 16_384  # elements whose norm is taken at once, so that it does not depend on the number of threads
_BLOCK = 1 << 20  # coordinates at once: 16 MiB of bits and numbers


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
