"""What a bundle carries of the hospitals that marked the images of its training: the mean of what each of them told."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.augment.colours import COLOURS, Colours, mean_of
from fedmed.data.augment.intensities import BINS, INTENSITIES
from fedmed.errors import BundleError

REFERENCES, SITES = "references", "sites"  # keys, of an export's metadata and within
FEWEST = 2  # sites: of one alone the mean would be its own values
FORMS = {INTENSITIES: (BINS,), COLOURS: (9,)}


def mean_values(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of what sites told, as plain numbers with how many they are; {} of fewer than two.

    Args:
        values: of each site, as in an exchange before training.
    """
    told = list(values)
    if len(told) < FEWEST:
        return {}
    found: dict[str, Any] = {}
    for name, shape in FORMS.items():
        parts = [one[name].detach().cpu().float() for one in told if isinstance(one.get(name), Tensor)]
        if len(parts) == len(told) and all(part.shape == shape for part in parts):
            found[name] = [round(value, 6) for value in _mean(name, parts).tolist()]
    return {SITES: len(told), **found} if found else {}


def _mean(name: str, parts: list[Tensor]) -> Tensor:
    if name == COLOURS:
        return mean_of(Colours.of(part.view(3, 3)) for part in parts).stacked().flatten()
    return torch.stack(parts).mean(dim=0)


def references(metadata: Mapping[str, Any]) -> dict[str, Tensor]:
    """Name -> the mean that a bundle carries; {} where it carries none.

    Raises:
        BundleError: it is no such mean.
    """
    federation = metadata.get("federation")
    said = federation.get(REFERENCES) if isinstance(federation, Mapping) else None
    found = {}
    for name, shape in FORMS.items():
        if not isinstance(said, Mapping) or name not in said:
            continue
        values, limit = said[name], 10
        plain = isinstance(values, list) and all(type(v) in (int, float) and abs(v) <= limit for v in values)
        if not plain or (len(values),) != shape:
            raise BundleError(f"configs/metadata.json: '{name}' of its '{REFERENCES}' is not {shape[0]} such numbers")
        found[name] = torch.tensor(values, dtype=torch.float32)
    return found
