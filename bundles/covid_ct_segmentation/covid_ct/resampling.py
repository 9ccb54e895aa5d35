"""Change a volume's voxel size along its own axes, in little memory."""

from collections.abc import Sequence

import torch
from torch import Tensor


def resample(volume: Tensor, shape: Sequence[int], step: Sequence[float]) -> Tensor:
    """Trilinear interpolation on a grid that starts at the same voxel centre and runs along the same axes.

    The result of ``torch.nn.functional.grid_sample`` with border padding, but without its grid of coordinates, which
    takes three to six times the memory of the volume. It goes plane by plane, so that only the result is as large as
    the volume.

    Args:
        volume: (C, X, Y, Z), floating point.
        shape: of the result, three axes.
        step: voxels of ``volume`` for each voxel of the result, three axes.

    Returns:
        (C, *shape), same dtype and device. Beyond the last voxel its value continues.
    """
    axes = [_neighbours(volume, axis + 1, n, s) for axis, (n, s) in enumerate(zip(shape, step, strict=True))]
    result = volume.new_empty((volume.shape[0], *shape))
    low, high, weight = axes[0]
    for x, (a, b, w) in enumerate(zip(low.tolist(), high.tolist(), weight.tolist(), strict=True)):
        plane = volume[:, a] if w == 0 else torch.lerp(volume[:, a], volume[:, b], w)
        result[:, x] = _along(_along(plane, 1, *axes[1]), 2, *axes[2])
    return result


def _neighbours(volume: Tensor, axis: int, size: int, step: float) -> tuple[Tensor, Tensor, Tensor]:
    """For each position in the result: the voxels below and above, and the weight of the upper one (0 … 1)."""
    last = volume.shape[axis] - 1
    place = (torch.arange(size, dtype=torch.float64) * step).clamp(0, last)
    low = place.floor().long()
    weight = (place - low).to(volume.dtype)
    return low.to(volume.device), (low + 1).clamp(max=last).to(volume.device), weight.to(volume.device)


def _along(plane: Tensor, axis: int, low: Tensor, high: Tensor, weight: Tensor) -> Tensor:
    """Interpolate ``plane`` (C, Y, Z) along one axis."""
    weight = weight.reshape([-1 if a == axis else 1 for a in range(3)])
    return torch.lerp(plane.index_select(axis, low), plane.index_select(axis, high), weight)
