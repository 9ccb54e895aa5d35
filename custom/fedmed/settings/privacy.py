"""Limits of what leaves a site: the ``privacy`` block of its YAML. No job can loosen them."""

import re
from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from fedmed.settings.yaml_model import BesideTheFile, Contradictions, YamlModel, not_required

Name = Annotated[str, Field(min_length=1, max_length=1000)]


class Privacy(YamlModel, json_schema_extra=not_required("account")):
    """A site's own limits. The defaults limit nothing but extras."""

    account: BesideTheFile
    """File that adds up the privacy loss of all jobs; the site's own. Default: $FEDMED_HOME/privacy/<site>.json."""

    allowed_tensors: tuple[Name, ...] | None = None
    """Regular expressions, found anywhere in a tensor's name. Default: all that a job shares."""

    allowed_metrics: tuple[Name, ...] | None = None
    """Names of scalars. Default: all; [] sends none. ``n_samples`` counts as one, and so do ``clip_norm``,
    ``noise_multiplier``, ``epsilon`` and ``delta``, by which a report can tell of the site's protection."""

    allowed_extras: tuple[Name, ...] = ()
    """Names of a method's additional values; none unless listed."""

    min_cases: int = Field(5, ge=1)
    """Scores of fewer test cases stay at the site, for a mean of few tells of each. Default: 5, and 1 for synthetic
    data (``demo``), which has no patients."""

    min_gain_cases: int = Field(10, ge=1)
    """What the federation gains over this site's own model stays at the site, with that model's scores, where it is of
    fewer patients. Default: 10, and 1 for synthetic data (``demo``)."""

    max_bytes: int | None = Field(None, ge=0)
    """Largest answer, tensors and extras together."""

    clip_norm: float | None = Field(None, gt=0)
    """An update is scaled down to this L2 norm over all its floating-point tensors."""

    noise_multiplier: float | None = Field(None, gt=0)
    """Standard deviation of the noise in every coordinate, in units of ``clip_norm``."""

    delta: float = Field(1e-5, gt=0, lt=1)
    """The δ at which ε is stated."""

    max_epsilon: float | None = Field(None, gt=0)
    """An answer that would bring the account above it is not given."""

    extras_noise: float | None = Field(None, gt=0)
    """Standard deviation of the noise in every value of an array among the extras; plain numbers get none."""

    extras_min_images: int | None = Field(None, ge=2, le=10**9)
    """Fewest images of which statistics among the extras may be; a job can only ask for more. Default: the method's
    own number."""

    noise_seed: int | None = Field(None, ge=0, lt=2**63)
    """Makes the noise repeatable and therefore worthless as protection; for experiments only."""

    @property
    def noise_std(self) -> float | None:
        """Standard deviation of the noise in every coordinate of an update; None without noise."""
        if self.noise_multiplier is None or self.clip_norm is None:
            return None
        return self.noise_multiplier * self.clip_norm

    @field_validator("allowed_tensors")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for pattern in patterns or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression ({error})") from error
        return patterns

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if mistakes := [(key, f"'privacy.{key}' {text}") for key, text in self._contradictions()]:
            raise Contradictions(mistakes)
        return self

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        noise = self.noise_multiplier is not None
        if noise and self.clip_norm is None:
            yield "noise_multiplier", "needs 'privacy.clip_norm': noise is measured by it"
        if noise and self.allowed_metrics is None:
            yield (
                "noise_multiplier",
                "needs 'privacy.allowed_metrics': scalars carry no noise and are outside the account, so say which "
                "may leave ([] for none)",
            )
        for key in ("extras_noise", "extras_min_images"):
            if getattr(self, key) is not None and not self.allowed_extras:
                yield key, "needs 'privacy.allowed_extras': without it no extras leave"
        if not noise and self.max_epsilon is not None:
            yield "max_epsilon", "needs 'privacy.noise_multiplier': without noise there is no account"
        if not noise and self.extras_noise is None and self.noise_seed is not None:
            yield "noise_seed", "needs 'privacy.noise_multiplier' or 'privacy.extras_noise'"
