"""A site's own protection of what it sends: updates are clipped, and carry noise as the site's settings say."""

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.messages.values import map_tensors
from fedmed.privacy.allow_lists import Allowed
from fedmed.privacy.noise import Source, add_noise, l2_norm, scale_down, seeded_source, system_source
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.site")
Facts = dict[str, Any]  # for the ledger


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
