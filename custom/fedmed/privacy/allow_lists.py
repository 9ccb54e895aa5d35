"""Names, kinds and sizes that a site's own settings allow to leave. Nothing here changes a value."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedmed.aggregation.sharing import is_batch_norm_buffer
from fedmed.bundles.bundle_parser import plain_metrics
from fedmed.errors import PrivacyError
from fedmed.settings.site import SiteConfig

log = logging.getLogger("fedmed.site")
VALIDATION = "validation/"  # on TensorBoard `validation/<x>` says the same as the metric `val_<x>`


class Allowed:
    """The lists of one site.

    Raises:
        PrivacyError: by each check: names what may not leave, and the setting.
    """

    def __init__(self, site: SiteConfig) -> None:
        self.site, self.privacy = site, site.privacy
        self._mentioned: set[str] = set()

    def refusal(self, what: str, key: str) -> PrivacyError:
        """An error that names the setting."""
        return PrivacyError(f"{what}: 'privacy.{key}' in {self.site.source}; nothing is sent")

    def check_update(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse an update whose tensors may not leave."""
        self._check_names(tensors)
        if self.privacy.noise_multiplier is None:
            return
        for name, tensor in tensors.items():
            if is_batch_norm_buffer(name) or not tensor.is_floating_point():
                raise self.refusal(
                    f"tensor '{name}' is a statistic, counter or table, which noise would spoil (a variance could "
                    'become negative) and which may not leave without it; ask for a job with "buffers": "local"',
                    "noise_multiplier",
                )

    def check_release(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse private layers that may not leave; that a job asks for them has been allowed already."""
        self._check_names(tensors)
        if tensors and self.privacy.noise_multiplier is not None:
            raise self.refusal("released layers would carry no noise", "noise_multiplier")

    def _check_names(self, tensors: Mapping[str, Tensor]) -> None:
        patterns = self.privacy.allowed_tensors
        if patterns is None:
            return
        for name in tensors:
            if not any(re.search(pattern, name) for pattern in patterns):
                raise self.refusal(f"tensor '{name}' is not among those that may leave", "allowed_tensors")

    def check_size(self, size: int) -> None:
        """Refuse an answer with too many bytes."""
        if self.privacy.max_bytes is not None and size > self.privacy.max_bytes:
            raise self.refusal(f"the answer has {size} bytes, {self.privacy.max_bytes} are allowed", "max_bytes")

    def metrics(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the scalars that may leave: finite numbers, listed if the site has a list."""
        plain, allowed = plain_metrics(metrics), self.privacy.allowed_metrics
        if allowed is None:
            return plain
        passed = {name: value for name, value in plain.items() if self._may(name)}
        if not _has_a_full_score(plain, passed):
            passed.pop("n_cases", None)  # test scores are read together
        self._mention("scalars", plain, passed, "allowed_metrics")
        return passed

    def protection(self, epsilon: float | None) -> dict[str, float]:
        """Return what the server may know of the site's own protection, as scalars: ``clip_norm`` and the like."""
        privacy = self.privacy
        facts = {"clip_norm": privacy.clip_norm, "noise_multiplier": privacy.noise_multiplier}
        facts |= {"epsilon": epsilon, "delta": privacy.delta} if epsilon is not None else {}
        return {name: value for name, value in plain_metrics(facts).items() if self._may(name)}

    def extras(self, extras: Mapping[str, Any]) -> dict[str, Any]:
        """Return the additional values of a method that the site has listed."""
        passed = {name: value for name, value in extras.items() if name in self.privacy.allowed_extras}
        self._mention("extras", extras, passed, "allowed_extras")
        return passed

    def streamed(self, tag: str) -> str | None:
        """Return the metric that a scalar for TensorBoard is (``train_loss`` for ``train/loss``), None if it stays."""
        name = f"val_{tag.removeprefix(VALIDATION)}" if tag.startswith(VALIDATION) else tag.replace("/", "_")
        return name if self._may(name) else None

    def _may(self, metric: str) -> bool:
        return self.privacy.allowed_metrics is None or metric in self.privacy.allowed_metrics

    def _mention(self, what: str, values: Mapping[str, Any], passed: Mapping[str, Any], key: str) -> None:
        left = ", ".join(sorted(set(values) - set(passed)))
        if left and left not in self._mentioned:
            self._mentioned.add(left)
            where = f"'privacy.{key}' in {self.site.source}"
            log.info("%s: %s that stay here: %s (%s)", self.site.site, what, left, where)


def _has_a_full_score(metrics: Mapping[str, Any], passed: Mapping[str, Any]) -> bool:
    """Tell whether all numbers of a test score pass, such as mean and deviation: ``dice_mean`` and ``dice_std``."""
    scores: dict[str, list[str]] = {}
    for name in metrics:
        if name != "n_cases":
            scores.setdefault(name.split("_")[0], []).append(name)
    return not scores or any(all(name in passed for name in names) for names in scores.values())
