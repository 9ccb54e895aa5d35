"""The gate through which every answer leaves a site. Its settings are the site's own; a job can only ask."""

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.buffers import is_batch_norm_buffer
from fedmed.errors import PrivacyError
from fedmed.federation.account import PrivacyAccount
from fedmed.federation.ledger import Ledger, describe, measure
from fedmed.federation.messages import Release, Update
from fedmed.federation.model import plain_metrics
from fedmed.federation.noise import Source, add_noise, l2_norm, scale_down, seeded_source, system_source
from fedmed.federation.site import SiteConfig
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.site")
STREAMED = {"validation/dice": "val_dice"}  # name on TensorBoard -> name of the metric that says the same


class SiteLimits:
    """Checks, changes and records what a site sends.

    Args:
        site: the site's own settings.
        folder: the job's folder at the site; the ledger is written there.
    """

    def __init__(self, site: SiteConfig, folder: Path) -> None:
        self.site, self.privacy, self.folder = site, site.privacy, Path(folder)
        self.account, self.ledger = PrivacyAccount(site.privacy), Ledger(folder, site.site)
        self._told: set[str] = set()

    def answer(self, task: str, round: int | None, answer: Update | Release | Mapping[str, Any]) -> Any:
        """Return what may leave of any kind of answer: see :meth:`apply`, :meth:`release`, :meth:`metrics`."""
        if isinstance(answer, Update):
            return self.apply(answer)
        return self.release(answer) if isinstance(answer, Release) else self.metrics(task, round, answer)

    def apply(self, update: Update) -> Update:
        """Return what may leave of an update: allowed scalars and extras, clipped, with noise; write the ledger.

        Raises:
            PrivacyError: it goes beyond the limits, or the account or the ledger cannot be written. Nothing may be
                sent, and the text stays at the site.
        """
        self.check_tensors(update.tensors)
        metrics = self._allowed_metrics({**update.metrics, "n_samples": update.n_samples})
        update = replace(update, n_samples=metrics.pop("n_samples", 0), metrics=metrics)
        update = replace(update, extras=self._allowed_extras(update.extras))
        tensors, facts = self._clipped(update.tensors)
        size = self._measured(content := _content(replace(update, tensors=tensors)))
        if self.privacy.noise_multiplier is not None:
            facts |= {"epsilon": self.account.spend(), "delta": self.privacy.delta}
            content["tensors"], more = self._noised(tensors, update.round)
            facts |= more
            size = self._measured(content)
        self._write("update", "train", update.round, content, **size, **facts)
        return replace(update, tensors=content["tensors"])

    def release(self, release: Release) -> Release:
        """Return an answer to a ``release`` task if its tensors may leave; write the ledger.

        Raises:
            PrivacyError: as :meth:`apply`.
        """
        self._check_names(release.tensors)
        if release.tensors and self.privacy.noise_multiplier is not None:
            raise self._refusal("released layers would carry no noise", "noise_multiplier")
        content = {"tensors": release.tensors, "allowed": release.allowed}
        self._write("release", "release", release.round, content, **self._measured(content))
        return release

    def metrics(self, task: str, round: int | None, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the scalars of a validation or evaluation that may leave; write the ledger.

        Raises:
            PrivacyError: the ledger cannot be written.
        """
        content = {"metrics": self._allowed_metrics(metrics)}
        self._write("scores", task, round, content, **self._measured(content))
        return content["metrics"]

    def live(self, tag: str, value: float, step: int) -> bool:
        """Whether a scalar may leave while the site works; if so, it is in the ledger.

        Args:
            tag: its name on TensorBoard, ``train/loss``; it is the metric ``train_loss`` of the limits.
            value, step: what is sent.
        """
        name = STREAMED.get(tag, tag.replace("/", "_"))
        if self.privacy.allowed_metrics is not None and name not in self.privacy.allowed_metrics:
            return False
        self.ledger.write("live", "train", None, metrics={name: value}, step=step)
        return True

    def refused(self, task: str, round: int | None, reason: str) -> None:
        """Note that only an error code leaves; ``reason`` stays at the site. A full disk is no reason to fail twice."""
        with suppress(PrivacyError):
            self.ledger.write("refused", task, round, reason=reason)

    def check_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Whether an update may have these tensors; values are not looked at.

        Raises:
            PrivacyError: names the first tensor that may not leave, and the setting.
        """
        self._check_names(tensors)
        if self.privacy.noise_multiplier is None:
            return
        for name, tensor in tensors.items():
            if is_batch_norm_buffer(name) or not tensor.is_floating_point():
                raise self._refusal(
                    f"tensor '{name}' is a statistic, counter or table, which noise would spoil (a variance could "
                    'become negative) and which may not leave without it; ask for a job with "buffers": "local"',
                    "noise_multiplier",
                )

    def _check_names(self, tensors: Mapping[str, Tensor]) -> None:
        patterns = self.privacy.allowed_tensors
        for name in tensors if patterns is not None else ():
            if not any(re.search(pattern, name) for pattern in patterns):
                raise self._refusal(f"tensor '{name}' is not among those that may leave", "allowed_tensors")

    def _clipped(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, float]]:
        bound = self.privacy.clip_norm
        if bound is None:
            return dict(tensors), {}
        if bad := [name for name, tensor in tensors.items() if not all_finite(tensor)]:
            raise self._refusal(f"tensor '{bad[0]}' has values that are NaN or infinite", "clip_norm")
        norm = l2_norm(tensors)
        return scale_down(tensors, norm, bound), {"norm": norm, "norm_clipped": min(norm, bound)}

    def _noised(self, tensors: Mapping[str, Tensor], round: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        std, source = self.privacy.noise_multiplier * self.privacy.clip_norm, self._source(round)
        facts = {"noise_std": std} | ({"noise_seed": True} if self.privacy.noise_seed is not None else {})
        return {name: add_noise(tensor, std, source) for name, tensor in tensors.items()}, facts

    def _source(self, round: int) -> Source:
        if self.privacy.noise_seed is None:
            return system_source()
        log.warning(
            "%s: 'privacy.noise_seed' is set in %s: whoever knows it can subtract the noise. It protects NOTHING and "
            "is for experiments only",
            self.site.site,
            self.site.source,
        )
        return seeded_source(derive_seed(self.privacy.noise_seed, self.site.site, round, "noise"))

    def _allowed_metrics(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        plain, allowed = plain_metrics(metrics), self.privacy.allowed_metrics
        if allowed is None:
            return plain
        kept = {name: value for name, value in plain.items() if name in allowed}
        if not {"dice_mean", "dice_std"} <= set(allowed):
            kept.pop("n_cases", None)  # test scores are read together
        self._mention("scalars", plain, kept, "allowed_metrics")
        return kept

    def _allowed_extras(self, extras: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in extras.items() if name in self.privacy.allowed_extras}
        self._mention("extras", extras, kept, "allowed_extras")
        return kept

    def _mention(self, what: str, all: Mapping[str, Any], kept: Mapping[str, Any], key: str) -> None:
        left = ", ".join(sorted(set(all) - set(kept)))
        if left and left not in self._told:
            self._told.add(left)
            log.info(
                "%s: %s that stay here: %s ('privacy.%s' in %s)", self.site.site, what, left, key, self.site.source
            )

    def _measured(self, content: Mapping[str, Any]) -> dict[str, Any]:
        size, digest = measure(content)
        if self.privacy.max_bytes is not None and size > self.privacy.max_bytes:
            raise self._refusal(f"the answer has {size} bytes, {self.privacy.max_bytes} are allowed", "max_bytes")
        return {"bytes": size, "sha256": digest}

    def _write(self, answer: str, task: str, round: int | None, content: Mapping[str, Any], **facts: Any) -> None:
        plain = {key: value for key, value in content.items() if key not in ("tensors", "extras")}
        plain |= {"tensors": describe(content.get("tensors", {})), "extras": sorted(content.get("extras", {}))}
        self.ledger.write(answer, task, round, **plain, **facts)

    def _refusal(self, what: str, key: str) -> PrivacyError:
        return PrivacyError(f"{what}: 'privacy.{key}' in {self.site.source}; nothing is sent")


def _content(update: Update) -> dict[str, Any]:
    facts = {"n_steps": update.n_steps, "n_samples": update.n_samples, "metrics": update.metrics}
    return {"tensors": update.tensors, **facts, "extras": update.extras}
