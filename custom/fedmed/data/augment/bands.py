"""Mean amplitudes of a site's images in bands of frequencies, and images in which each band is as strong as wanted.

After HarmoFL (Jiang, Wang and Dou, AAAI 2022, arXiv 2112.10775), which gives every image the mean amplitude spectrum of
all clients and keeps its phases. Here a whole site's mean is drawn to that of all sites, by the same factors for all of
its images (ours): a patch keeps what tells it from other patches, and a scan of any size is changed as its patches are.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedmed.errors import DataError

AMPLITUDES = "amplitude_bands"  # what sites send each other, as a site's settings and the ledger call it
BANDS = 16  # of frequencies above 0, equally wide up to half a wave a voxel; the last has all beyond that, too
TILE = 32  # voxels of a side of the pieces that are looked at: then sites with images of other sizes compare
FLAT = 0.01  # a tile whose standard deviation is less, such as air, does not count
LIMIT = 2.0  # largest factor, and its inverse the smallest
OUTSIDE = 1e-3  # beyond 0 and 1, by rounding


def band_amplitudes(images: Iterable[Tensor]) -> Tensor:
    """The mean intensity, and the mean amplitude in each band of frequencies; of tiles, then of images.

    A tile is tapered (Hann), so that its borders do not count as edges; amplitudes are in deviations of noise.

    Args:
        images: (C, H, W) or (C, D, H, W), float, from 0 to 1.

    Returns:
        (C · (1 + BANDS),) float32: of each colour the mean, then the bands from low to high.

    Raises:
        DataError: no image has anything to see, or one has other values; says by its number which.
    """
    amplitudes = []
    for number, image in enumerate(images, start=1):
        low, high = (float(end) for end in image.aminmax())
        if not (low >= -OUTSIDE and high <= 1 + OUTSIDE):
            raise DataError(
                f"matching amplitudes needs images from 0 to 1, and image {number} of the list has {low:.3g} to "
                f"{high:.3g}; scale them in the bundle's transforms, or leave 'algorithm' out of the study"
            )
        tiles = _tiles(image.float())
        tiles = tiles[tiles.flatten(1).std(dim=1) > FLAT]
        if len(tiles):
            amplitudes.append(_of_tiles(tiles))
    if not amplitudes:
        raise DataError("matching amplitudes needs an image that is not of one intensity, and the list has none")
    return torch.stack(amplitudes).mean(dim=0).flatten()


def band_factors(local: Tensor, wanted: Tensor, strength: float = 1.0) -> Tensor:
    """By what each band of a site's images is multiplied: ``(wanted / local) ** strength``, 1 where the site has none.

    Args:
        local, wanted: of :func:`band_amplitudes`, (C · (1 + BANDS),).
        strength: 1 = as strong as wanted; less: part of the way there.

    Returns:
        (C, 1 + BANDS), from 1 / LIMIT to LIMIT, in four decimals, as they are written into an exported bundle.
    """
    ratio = torch.where(local > 0, wanted.clamp_min(0) / local.clamp_min(1e-12), 1.0)
    return (ratio.clamp(1 / LIMIT, LIMIT) ** strength).round(decimals=4).view(-1, 1 + BANDS)


def with_factors(images: Tensor, factors: Tensor) -> Tensor:
    """Images whose amplitudes are multiplied by the factor of their frequency; phases stay.

    Between the middles of bands factors are interpolated, so that nothing rings. Images are mirrored at their borders.

    Args:
        images: (B, C, H, W) or (B, C, D, H, W), real; not modified.
        factors: (C, 1 + BANDS): of frequency 0, then of the bands.

    Returns:
        As ``images``, not cut off to their range.
    """
    axes, sides = tuple(range(2, images.ndim)), images.shape[2:]
    margins = [min(TILE // 2, side - 1) for side in sides]
    padded = functional.pad(images, [m for margin in reversed(margins) for m in (margin, margin)], "reflect")
    spectra = torch.fft.rfftn(padded, dim=axes)
    place = _radius(padded.shape[2:], half=True).to(images.device) * BANDS
    place = torch.where(place < 0.5, 2 * place, place + 0.5).clamp(max=BANDS)  # 0: frequency 0; k: middle of band k
    below = place.long().clamp(max=BANDS - 1)
    factors = factors.to(images)
    spectra *= torch.lerp(factors[:, below], factors[:, below + 1], (place - below).to(images))
    changed = torch.fft.irfftn(spectra, s=padded.shape[2:], dim=axes)
    return changed[(..., *(slice(margin, margin + side) for margin, side in zip(margins, sides, strict=True)))]


def _tiles(image: Tensor) -> Tensor:
    """(n, C, ...) pieces without overlap; what is left over at the end of a side is not used."""
    sides = image.ndim - 1
    for axis in range(1, sides + 1):
        size = min(TILE, image.shape[axis])
        image = image.unfold(axis, size, size)
    return image.flatten(1, sides).transpose(0, 1)


def _of_tiles(tiles: Tensor) -> Tensor:
    """(C, 1 + BANDS)."""
    axes, sides = tuple(range(2, tiles.ndim)), tiles.shape[2:]
    mean = tiles.mean(dim=axes, keepdim=True)
    taper = torch.ones(())
    for side in sides:
        taper = taper.unsqueeze(-1) * torch.hann_window(side)
    spectra = torch.fft.fftn((tiles - mean) * taper, dim=axes).abs() / taper.square().sum().sqrt()
    amplitudes = spectra.mean(dim=0).flatten(1)[:, 1:]
    band = (_radius(sides).flatten()[1:] * BANDS - 1e-6).long().clamp(max=BANDS - 1)
    sums = torch.zeros(len(amplitudes), BANDS).index_add_(1, band, amplitudes)
    return torch.cat([mean.mean(dim=0).view(-1, 1), sums / band.bincount(minlength=BANDS).clamp_min(1)], dim=1)


def _radius(sides: Sequence[int], half: bool = False) -> Tensor:
    """Distance of each frequency of a spectrum from 0, where half a wave a voxel is 1; ``half``: of ``rfftn``."""
    squares = torch.zeros(())
    for axis, side in enumerate(sides):
        last = half and axis == len(sides) - 1
        frequencies = torch.fft.rfftfreq(side) if last else torch.fft.fftfreq(side)
        squares = squares.unsqueeze(-1) + (2 * frequencies).square()
    return squares.sqrt()
