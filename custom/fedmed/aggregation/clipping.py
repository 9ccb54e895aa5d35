"""How much of each update counts when no site may move the model further than a bound."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedmed.aggregation.acceptance import update_norm
from fedmed.aggregation.contribution import Contribution
from fedmed.errors import JobError

log = logging.getLogger("fedmed.server")


def check_bound(name: str, bound: float | None) -> None:
    """Refuse a bound that cannot be meant.

    Args:
        name: its name in the job, ``clip_norm`` or ``max_norm``.
        bound: largest L2 norm of an update; None bounds nothing.

    Raises:
        JobError: it is no finite number above 0.
    """
    plain = isinstance(bound, (int, float)) and not isinstance(bound, bool)
    if bound is not None and not (plain and 0 < bound < math.inf):
        raise JobError(f"'{name}' is {bound!r}; give the largest L2 norm of an update, a number above 0")


def update_norms(updates: Sequence[Contribution]) -> dict[str, float]:
    """Return site -> L2 norm over all floating-point differences of its update, BatchNorm statistics included."""
    return {update.site: update_norm(update.tensors) for update in updates}


def clip_factors(norms: Mapping[str, float], clip_norm: float | None) -> dict[str, float]:
    """Return site -> factor in [0, 1] that brings its update within the bound; 1 where it is.

    The whole update is scaled, so its direction stays; integer counters are not. A norm that overflows gives 0.

    Args:
        norms: site -> L2 norm of its update, 0 or more.
        clip_norm: largest norm; None bounds nothing.
    """
    if clip_norm is None:
        return dict.fromkeys(norms, 1.0)
    return {site: 1.0 if norm <= clip_norm else clip_norm / norm for site, norm in norms.items()}


def clipping_record(norms: Mapping[str, float], clip_norm: float | None) -> dict[str, Any]:
    """Return what a round's record says about clipping: nothing without a bound.

    Args:
        norms: site -> norm of its update.
        clip_norm: the bound.

    Returns:
        ``norms``: site -> norm of its update, None if beyond the largest number; ``clipped``: site -> factor, only
        sites above the bound.
    """
    if clip_norm is None:
        return {}
    clipped = {site: factor for site, factor in clip_factors(norms, clip_norm).items() if factor < 1}
    for site, factor in clipped.items():
        log.info("site '%s': its update of norm %.4g was cut to %.4g, by %.4g", site, norms[site], clip_norm, factor)
    return {"norms": {s: n if math.isfinite(n) else None for s, n in norms.items()}, "clipped": clipped}
