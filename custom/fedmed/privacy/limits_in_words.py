"""A site's own limits as a person reads them."""

from collections.abc import Sequence

from fedmed.reports.words import plain_delta, size
from fedmed.settings.site import SiteConfig

RELEASED = (
    "never released",
    "released when a job asks",
    "released when a job asks, which may keep the mean of all sites' for an export",
)
NOISE = "Gaussian, standard deviation {:g} in every value"


def limits_in_words(site: SiteConfig) -> list[list[str]]:
    """Rows of what the site has limited, and of what holds where it has set no limit."""
    own = site.privacy
    said = {
        "tensors": _listed(own.allowed_tensors, "all that a job shares"),
        "numbers": _listed(own.allowed_metrics, "all"),
        "extras of a method": _listed(own.allowed_extras, ""),
        "test scores": f"of {own.min_cases} cases or more",
        "size of an answer": "any" if own.max_bytes is None else f"at most {size(own.max_bytes)}",
        "norm of an update": "any" if own.clip_norm is None else f"cut to {own.clip_norm:g} where it is larger",
        "noise": "none" if own.noise_std is None else NOISE.format(own.noise_std),
        "private layers": RELEASED[site.allow_release + site.allow_kept_release],
    }
    if own.extras_noise is not None:
        said["noise of extras"] = f"{NOISE.format(own.extras_noise)} of an array"
    if own.noise_std is not None:
        most = "no limit" if own.max_epsilon is None else f"at most {own.max_epsilon:g}"
        said["account"] = f"ε at δ = {plain_delta(own.delta)}: {most}; kept in {own.account}, over all jobs"
    return [[limit, value] for limit, value in said.items()]


def _listed(names: Sequence[str] | None, everything: str) -> str:
    return everything if names is None else ", ".join(names) or "none"
