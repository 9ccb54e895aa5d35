"""Checks by which the server takes or refuses a site's update, and the clipping of large ones."""

import logging
import math
from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.sharing import changed, classify
from fedmed.errors import JobError, UpdateRefused

# Elements whose norm is taken at once: torch gives a sum of 32768 or more to several threads, and then its last bits
# depend on how many there are.
_NORM_BLOCK = 16_384
MOST = 10**12  # steps or samples
log = logging.getLogger("fedmed.server")


def check_update(
    update: Contribution,
    expected: Mapping[str, Tensor],
    round: int,
    seen: Collection[str],
    max_norm: float | None = None,
) -> float:
    """Check one update before it may touch the model, and return its norm; nothing is changed.

    Args:
        update: differences that a site sends.
        expected: name -> global tensor, exactly what the site's role must send.
        round: the current round.
        seen: sites whose update of this round was already accepted.
        max_norm: largest allowed L2 norm over all floating-point differences together; None allows any finite one.

    Raises:
        UpdateRefused: another round's or a repeated update, a wrong number of steps or samples, an unknown or missing
            name, a wrong shape or dtype, a value that is not finite, a changed constant, a change without a step, or
            too large a norm. It names the site, and the tensor where there is one.
    """
    if update.round != round:
        raise UpdateRefused(update.site, f"it was computed for round {update.round}, this is round {round}")
    if update.site in seen:
        raise UpdateRefused(update.site, f"it already sent an update for round {round}")
    for name in ("n_steps", "n_samples"):  # a site may be weighed by either
        count = getattr(update, name)
        if isinstance(count, bool) or not isinstance(count, Integral) or not 0 <= int(count) <= MOST:
            raise UpdateRefused(update.site, f"{name} is {count!r}; it must be a whole number, 0 to {MOST:,}")
    if unknown := sorted(set(update.tensors) - set(expected)):
        reason = f"this name is not one that the site may send ({len(unknown)} such)"
        raise UpdateRefused(update.site, reason, unknown[0])
    if missing := sorted(set(expected) - set(update.tensors)):
        raise UpdateRefused(update.site, f"it is missing ({len(missing)} such)", missing[0])
    for name, reference in expected.items():
        _check_tensor(update, name, reference)
    norm = update_norm(update.tensors)
    if not math.isfinite(norm):
        raise UpdateRefused(update.site, "the norm of its differences is beyond the largest number")
    if max_norm is not None and norm > max_norm:
        raise UpdateRefused(update.site, f"the norm of its differences is {norm:.6g}, above the limit {max_norm:.6g}")
    return norm


def all_finite(tensor: Tensor) -> bool:
    """True where no element is NaN or infinite.

    One pass without temporary memory: a NaN or infinity survives in the sum. Finite values whose sum overflows get a
    second, exact look.
    """
    if not tensor.is_floating_point():
        return True
    return bool(torch.isfinite(tensor.detach().sum())) or bool(torch.isfinite(tensor).all())


def update_norm(tensors: Mapping[str, Tensor]) -> float:
    """Return the L2 norm over all elements of all floating-point tensors, to about five digits for float32.

    Each block's norm is taken in float32 at least (float64 would take four times as long), their sum in float64. The
    result depends neither on the order of the tensors nor on the number of threads.
    """
    chosen = [tensor.detach() for _, tensor in sorted(tensors.items()) if tensor.is_floating_point()]
    return math.hypot(*(_norm(block) for tensor in chosen for block in tensor.reshape(-1).split(_NORM_BLOCK)))


def _norm(block: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(block, dtype=torch.promote_types(block.dtype, torch.float32)))
    # Squares above 1e38 overflow in float32, though the norm itself does not.
    return float(torch.linalg.vector_norm(block, dtype=torch.float64)) if math.isinf(norm) else norm


def _check_tensor(update: Contribution, name: str, reference: Tensor) -> None:
    difference = update.tensors[name]
    if not isinstance(difference, Tensor):
        raise UpdateRefused(update.site, f"it is a {type(difference).__name__}, not a tensor", name)
    if difference.shape != reference.shape:
        shapes = f"its shape is {tuple(difference.shape)}, the model's is {tuple(reference.shape)}"
        raise UpdateRefused(update.site, shapes, name)
    if difference.dtype != reference.dtype:
        raise UpdateRefused(update.site, f"its dtype is {difference.dtype}, the model's is {reference.dtype}", name)
    if not all_finite(difference):
        bad = int((~torch.isfinite(difference)).sum())
        raise UpdateRefused(update.site, f"{bad} of {difference.numel()} values are NaN or infinite", name)
    if classify(name, reference) == "constant" and changed(difference):
        raise UpdateRefused(update.site, "it is constant in this model, but the site changed it", name)
    if update.n_steps == 0 and changed(difference):
        raise UpdateRefused(update.site, "it changed although the site did no step", name)


def check_bound(name: str, bound: float | None) -> None:
    """Refuse a bound that cannot be meant.

    Args:
        name: its name in the job, ``clip_norm`` or ``max_norm``.
        bound: largest L2 norm of an update, a finite number above 0 (else JobError); None bounds nothing.
    """
    plain = isinstance(bound, (int, float)) and not isinstance(bound, bool)
    if bound is not None and not (plain and 0 < bound < math.inf):
        raise JobError(f"'{name}' is {bound!r}; give the largest L2 norm of an update, a number above 0")


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
    """Return what a round's record says about clipping; ``{}`` without a bound. Arguments as of :func:`clip_factors`.

    Returns:
        ``norms``: site -> norm, None if beyond the largest number; ``clipped``: site -> factor, of sites above the
        bound.
    """
    if clip_norm is None:
        return {}
    clipped = {site: factor for site, factor in clip_factors(norms, clip_norm).items() if factor < 1}
    for site, factor in clipped.items():
        log.info("site '%s': its update of norm %.4g was cut to %.4g, by %.4g", site, norms[site], clip_norm, factor)
    return {"norms": {s: n if math.isfinite(n) else None for s, n in norms.items()}, "clipped": clipped}
