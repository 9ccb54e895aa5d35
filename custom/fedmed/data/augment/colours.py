"""Colours of a hospital's images, and images drawn to the colours of others.

Mean and deviation of three channels in the decorrelated space lαβ (Ruderman et al. 1998): *colour transfer* of Reinhard
et al. 2001, IEEE Computer Graphics and Applications 21(5), Eq. 10 and 11, with one transfer for all images of a site.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from fedmed.errors import DataError

COLOURS = "colour_statistics"  # what sites send each other, as a site's settings and the ledger call it
SAMPLES = 20_000  # pixels of an image that are looked at, evenly spread
DARK = 0.04  # a pixel whose brightest channel is below is of a black border, and counts for nothing
FLOOR = 1 / 255  # of a channel before its logarithm
LEAST = 1e-3  # a deviation below: images of one colour
OUTSIDE = 1e-3  # beyond 0 and 1, by rounding

LMS = torch.tensor([[0.3811, 0.5783, 0.0402], [0.1967, 0.7244, 0.0782], [0.0241, 0.1288, 0.8444]], dtype=torch.float64)
TURN = torch.diag(torch.tensor([3.0, 6.0, 2.0], dtype=torch.float64).rsqrt()) @ torch.tensor(
    [[1, 1, 1], [1, 1, -2], [1, -1, 0]], dtype=torch.float64
)


class Colours(NamedTuple):
    """Mean and deviation of l, α and β over all pixels, and deviation of the images' own means; (3,) float32 each."""

    mean: Tensor
    deviation: Tensor
    between: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Colours":
        """Inverse of :meth:`stacked`."""
        return cls(*values.detach().cpu().float().unbind())

    def stacked(self) -> Tensor:
        """All of it, (3, 3)."""
        return torch.stack(self)


def to_opponent(images: Tensor) -> Tensor:
    """LαΒ values of RGB images (..., 3, H, W) from 0 to 1; in their type and on their device."""
    cones = torch.einsum("ij,...jhw->...ihw", LMS.to(images), images).clamp_min(FLOOR).log10()
    return torch.einsum("ij,...jhw->...ihw", TURN.to(images), cones)


def to_rgb(opponent: Tensor) -> Tensor:
    """Inverse of :func:`to_opponent`, within 0 and 1."""
    cones = 10 ** torch.einsum("ij,...jhw->...ihw", torch.linalg.inv(TURN).to(opponent), opponent)
    return torch.einsum("ij,...jhw->...ihw", torch.linalg.inv(LMS).to(opponent), cones).clamp(0, 1)


def colours(images: Iterable[Tensor]) -> Colours:
    """Statistics of images, each counting the same; black borders count for nothing.

    Args:
        images: (3 · frames, H, W) each, RGB from 0 to 1; at least one that is not black.

    Raises:
        DataError: there is none, one has other values or channels (says by its number which), or all are of one colour.
    """
    means, squares = [], []
    for number, image in enumerate(images, start=1):
        low, high = (float(end) for end in image.aminmax())
        if image.shape[0] % 3 or not (low >= -OUTSIDE and high <= 1 + OUTSIDE):
            raise DataError(
                f"matching colours needs images of three channels from 0 to 1, and image {number} of the list has "
                f"{image.shape[0]}, from {low:.3g} to {high:.3g}; leave 'colour' out of the study's 'adaptation'"
            )
        pixels = image[-3:].flatten(1).float()  # of a clip the last frame
        pixels = pixels[:, :: max(1, pixels.shape[1] // SAMPLES)]
        pixels = pixels[:, pixels.amax(dim=0) > DARK]
        if pixels.shape[1]:
            values = to_opponent(pixels[:, None, :].clamp(0, 1))[:, 0]
            means.append(values.mean(dim=1))
            squares.append(values.square().mean(dim=1))
    if not means:
        raise DataError("matching colours needs at least one image that is not black, and the list has none")
    each = torch.stack(means)
    mean, square = each.mean(dim=0), torch.stack(squares).mean(dim=0)
    deviation = (square - mean.square()).clamp_min(0).sqrt()
    if float(deviation[0]) < LEAST:
        raise DataError("matching colours needs images that are not all of one colour, and the list has no others")
    return Colours(mean, deviation, each.std(dim=0, correction=0))


def mean_of(others: Iterable[Colours]) -> Colours:
    """Statistics of the images of several sites together, each site counting the same."""
    means, deviations, betweens = (torch.stack(parts) for parts in zip(*others, strict=True))
    mean = means.mean(dim=0)
    spread = (means - mean).square().mean(dim=0)
    deviation, between = ((part.square().mean(dim=0) + spread).sqrt() for part in (deviations, betweens))
    return Colours(mean, deviation, between)


def distance(local: Colours, wanted: Colours) -> float:
    """Distance of a site's colours from others', in deviations from image to image: root of the mean over l, α, β."""
    width = (local.between.square() + wanted.between.square()).clamp_min(LEAST**2).sqrt()
    return float(((local.mean - wanted.mean) / width).square().mean().sqrt())


def transfer(images: Tensor, local: Colours, wanted: Colours) -> Tensor:
    """Images (..., 3 · frames, H, W) from 0 to 1 with the mean and deviation of others; borders stay black."""
    shape, given = (3, 1, 1), images
    images = images.unflatten(-3, (-1, 3))  # frames of a clip may stand one after the other as channels
    source = to_opponent(images.clamp(0, 1))
    scale = (wanted.deviation / local.deviation.clamp_min(LEAST)).to(source).view(shape)
    moved = (source - local.mean.to(source).view(shape)) * scale + wanted.mean.to(source).view(shape)
    dark = images.amax(dim=-3, keepdim=True) <= DARK
    return torch.where(dark, images, to_rgb(moved)).view_as(given)
