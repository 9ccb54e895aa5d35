"""The gate through which every answer leaves a site. Its settings are the site's own; a job can only ask."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.errors import PrivacyError
from fedmed.messages.answers import Answer, Extras, Release, Update
from fedmed.messages.values import map_tensors
from fedmed.privacy.account import PrivacyAccount
from fedmed.privacy.allow_lists import Allowed
from fedmed.privacy.ledger import Ledger, describe, kind, payload_bytes, payload_digest
from fedmed.privacy.noise import Source, add_noise, l2_norm, scale_down, seeded_source, system_source
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig

log = logging.getLogger("fedmed.site")


class SiteLimits:
    """Checks, changes and records what a site sends.

    Args:
        site: the site's own settings.
        folder: the job's folder at the site; the ledger is written there.
    """

    def __init__(self, site: SiteConfig, folder: Path) -> None:
        self.site, self.privacy, self.folder = site, site.privacy, Path(folder)
        self.allowed, self.account = Allowed(site), PrivacyAccount(site.privacy)
        self.ledger = Ledger(folder, site.site)

    def answer(self, task: str, round: int | None, answer: Answer) -> Answer:
        """Return what may leave of any kind of answer: see the methods below."""
        if isinstance(answer, Update):
            return self.apply(answer)
        if isinstance(answer, Extras):
            return self.metadata(answer)
        return self.release(answer) if isinstance(answer, Release) else self.metrics(task, round, answer)

    def apply(self, update: Update) -> Update:
        """Return what may leave of an update: allowed scalars and extras, clipped, with noise; write the ledger.

        Raises:
            PrivacyError: it goes beyond the limits, or the account or the ledger cannot be written. Nothing may be
                sent, and the text stays at the site.
        """
        self.allowed.check_update(update.tensors)
        metrics = self.allowed.metrics({**update.metrics, "n_samples": update.n_samples})
        update = replace(update, n_samples=int(metrics.pop("n_samples", 0)), metrics=metrics)
        tensors, facts = self._clipped(update.tensors)
        extras, more = self._extras(update.extras, update.round)
        update, facts = replace(update, extras=extras), facts | more
        self._sized(_content(replace(update, tensors=tensors)))  # what is too large must not cost anything
        if self.privacy.noise_std is not None:
            facts |= {"epsilon": self.account.spend(), "delta": self.privacy.delta}
            tensors, more = self._noised(tensors, update.round, self.privacy.noise_std)
            facts |= more
        known = self.allowed.protection(facts.get("epsilon"))
        update = replace(update, tensors=tensors, metrics={**update.metrics, **known})
        self._write("update", "train", update.round, _content(update), **facts)
        return update

    def metadata(self, extras: Extras) -> Extras:
        """Return what may leave of an answer to a ``metadata`` task: listed values, with noise; write the ledger.

        Raises:
            PrivacyError: it is too large, holds what nothing may send, or the ledger cannot be written.
        """
        values, facts = self._extras(extras.values, extras.round)
        self._write("metadata", "metadata", extras.round, {"extras": values}, **facts)
        return replace(extras, values=values)

    def release(self, release: Release) -> Release:
        """Return an answer to a ``release`` task if its tensors may leave; write the ledger.

        Raises:
            PrivacyError: as :meth:`apply`.
        """
        self.allowed.check_release(release.tensors)
        content = {"tensors": release.tensors, "allowed": release.allowed}
        self._write("release", "release", release.round, content)
        return release

    def metrics(self, task: str, round: int | None, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the scalars of a validation or evaluation that may leave; write the ledger.

        Raises:
            PrivacyError: the ledger cannot be written.
        """
        kept = self.allowed.metrics(metrics)
        self._write("scores", task, round, {"metrics": kept})
        return kept

    def live(self, tag: str, value: float, step: int) -> bool:
        """Whether a scalar may leave while the site works; if so, it is in the ledger.

        Args:
            tag: its name on TensorBoard, ``train/loss``; it is the metric ``train_loss`` of the limits.
            value, step: what is sent.

        Raises:
            PrivacyError: the ledger cannot be written.
        """
        name = self.allowed.streamed(tag)
        if name is not None:
            self.ledger.write("live", "train", None, metrics={name: value}, step=step)
        return name is not None

    def refused(self, task: str, round: int | None, reason: str) -> None:
        """Note that only an error code leaves; ``reason`` stays at the site. A full disk is no reason to fail twice."""
        with suppress(PrivacyError):
            self.ledger.write("refused", task, round, reason=reason)

    def _clipped(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, float]]:
        bound = self.privacy.clip_norm
        if bound is None:
            return dict(tensors), {}
        if bad := [name for name, tensor in tensors.items() if not all_finite(tensor)]:
            raise self.allowed.refusal(f"tensor '{bad[0]}' has values that are NaN or infinite", "clip_norm")
        norm = l2_norm(tensors)
        return scale_down(tensors, norm, bound), {"norm": norm, "norm_clipped": min(norm, bound)}

    def _noised(
        self, tensors: Mapping[str, Tensor], round: int, std: float
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        source = self._source(round)
        facts = {"noise_std": std} | ({"noise_seed": True} if self.privacy.noise_seed is not None else {})
        return {name: add_noise(tensor, std, source) for name, tensor in tensors.items()}, facts

    def _extras(self, extras: Mapping[str, Any], round: int) -> tuple[dict[str, Any], dict[str, Any]]:
        kept, std = self.allowed.extras(extras), self.privacy.extras_noise
        if std is None or not kept:
            return kept, {}
        source = self._source(round, "extras noise")
        for name, value in kept.items():
            if _bare(value):
                raise self.allowed.refusal(f"'{name}' holds numbers outside of an array, without noise", "extras_noise")

        def noised(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                raise self.allowed.refusal(f"an array of {tensor.dtype} cannot carry noise", "extras_noise")
            return add_noise(tensor, std, source)

        return map_tensors(kept, noised), {"extras_noise": std}

    def _source(self, round: int, purpose: str = "noise") -> Source:
        if self.privacy.noise_seed is None:
            return system_source()
        log.warning(
            "%s: 'privacy.noise_seed' is set in %s: whoever knows it can subtract the noise. It protects NOTHING and "
            "is for experiments only",
            self.site.site,
            self.site.source,
        )
        return seeded_source(derive_seed(self.privacy.noise_seed, self.site.site, round, purpose))

    def _sized(self, content: Mapping[str, Any]) -> int:
        size = payload_bytes(content)
        self.allowed.check_size(size)
        return size

    def _write(self, answer: str, task: str, round: int | None, content: Mapping[str, Any], **facts: Any) -> None:
        """Write down what leaves, with its digest: here alone an answer is hashed, as it leaves."""
        facts = {"bytes": self._sized(content), "sha256": payload_digest(content), **facts}
        plain = {key: value for key, value in content.items() if key not in ("tensors", "extras")}
        extras = {name: map_tensors(value, kind) for name, value in sorted(content.get("extras", {}).items())}
        plain |= {"tensors": describe(content.get("tensors", {})), "extras": extras}
        self.ledger.write(answer, task, round, **plain, **facts)


def _bare(value: Any, inside: bool = False) -> bool:
    """Whether there are numbers that get no noise though they may be many: in lists, or in arrays of another kind."""
    if isinstance(value, Mapping | list | tuple):
        return any(_bare(item, True) for item in (value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, np.ndarray) or (inside and type(value) in (int, float))


def _content(update: Update) -> dict[str, Any]:
    facts = {"n_steps": update.n_steps, "n_samples": update.n_samples, "metrics": update.metrics}
    return {"tensors": update.tensors, **facts, "extras": update.extras}
