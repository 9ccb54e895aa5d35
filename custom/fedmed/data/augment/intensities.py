"""Brightness of images: histograms, the gamma that makes one like another, and the mean of several sites'."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.augment.colours import COLOURS, Colours, mean_of
from fedmed.errors import BundleError, DataError

INTENSITIES = "intensity_shares"  # what sites send each other, as a site's settings and the ledger call it
BINS = 100  # of intensities 0 to 1
SAMPLES = 200_000  # voxels of an image that are looked at, evenly spread
GAMMAS = torch.logspace(-1, 1, 81, base=2.5)  # 0.4 to 2.5, each 2.3 % above the one before
OUTSIDE = 1e-3  # beyond 0 and 1, by rounding
REFERENCES, SITES = "references", "sites"  # keys, of an export's metadata and within
LARGEST = 10  # value of a mean
FEWEST = 2  # sites: of one alone the mean would be its own values
FORMS = {INTENSITIES: (BINS,), COLOURS: (9,)}


def histogram(images: Iterable[Tensor]) -> Tensor:
    """The share of voxels in each of :data:`BINS` equal bins of intensities 0 to 1, the mean over images.

    Args:
        images: of any shape, float, from 0 to 1; at least one.

    Returns:
        (BINS,), float32, summing to 1.

    Raises:
        DataError: there is no image, or one has other values; says by its number which.
    """
    shares = []
    for number, image in enumerate(images, start=1):
        flat = image.flatten()
        flat = flat[:: max(1, len(flat) // SAMPLES)].float()
        low, high = (float(end) for end in flat.aminmax())
        if not (low >= -OUTSIDE and high <= 1 + OUTSIDE):
            raise DataError(
                f"matching intensities needs images from 0 to 1, and image {number} of the list has {low:.3g} to "
                f"{high:.3g}; scale them in the bundle's transforms, or leave 'algorithm' out of the study"
            )
        shares.append(torch.histc(flat.clamp(0, 1), BINS, 0, 1) / len(flat))
    if not shares:
        raise DataError("matching intensities needs at least one image, and the list has none")
    return torch.stack(shares).mean(dim=0)


def matching_gamma(local: Tensor, wanted: Tensor) -> float:
    """The gamma with which images look most like others: the share of voxels that their histograms have in common.

    Black and white stay, which in a CT are air and soft tissue; between them one number decides, so that a histogram of
    other organs, or of another share of air, does not bend the whole range.

    Args:
        local, wanted: (BINS,) of :func:`histogram`.

    Returns:
        0.4 to 2.5; 1 where none makes them more alike.
    """
    edges = torch.linspace(0, 1, len(local) + 1, dtype=torch.float64)
    below = torch.cat([torch.zeros(1, dtype=torch.float64), local.double().cumsum(0)])
    common = []
    for gamma in [1.0, *GAMMAS.tolist()]:
        at = edges ** (1 / gamma) * len(local)  # where the edges of the bins come from, in bins
        first = at.long().clamp(max=len(local) - 1)
        moved = torch.lerp(below[first], below[first + 1], at - first).diff()
        common.append(float(torch.minimum(moved, wanted.double()).sum()))
    best = max(range(len(common)), key=common.__getitem__)  # of equals the first, 1
    return 1.0 if best == 0 else float(GAMMAS[best - 1])


def mean_values(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of sites' values in an exchange before training, as plain numbers with how many; {} of fewer than 2."""
    received = list(values)
    if len(received) < FEWEST:
        return {}
    means: dict[str, Any] = {}
    for name, shape in FORMS.items():
        parts = [one[name].detach().cpu().float() for one in received if isinstance(one.get(name), Tensor)]
        if len(parts) == len(received) and all(part.shape == shape for part in parts):
            if name == COLOURS:
                mean = mean_of(Colours.of(part.view(3, 3)) for part in parts).stacked().flatten()
            else:
                mean = torch.stack(parts).mean(dim=0)
            means[name] = [round(value, 6) for value in mean.tolist()]
    return {SITES: len(received), **means} if means else {}


def references(metadata: Mapping[str, Any]) -> dict[str, Tensor]:
    """Name -> the mean that a bundle carries; {} where it carries none.

    Raises:
        BundleError: it is no such mean.
    """
    federation = metadata.get("federation")
    listed = federation.get(REFERENCES) if isinstance(federation, Mapping) else None
    means = {}
    for name, shape in FORMS.items():
        if not isinstance(listed, Mapping) or name not in listed:
            continue
        values = listed[name]
        plain = isinstance(values, list) and all(type(v) in (int, float) and abs(v) <= LARGEST for v in values)
        if not plain or (len(values),) != shape:
            raise BundleError(f"configs/metadata.json: '{name}' of its '{REFERENCES}' is not {shape[0]} such numbers")
        means[name] = torch.tensor(values, dtype=torch.float32)
    return means
