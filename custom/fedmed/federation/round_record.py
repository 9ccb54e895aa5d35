"""What the server notes of a round: one line of ``rounds.jsonl``."""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedmed.aggregation.geometry import update_geometry
from fedmed.aggregation.sharing import tensor_bytes
from fedmed.bundles.network import plain_metrics
from fedmed.messages.answers import Update
from fedmed.messages.values import extras_bytes

if TYPE_CHECKING:
    from fedmed.federation.server import Server

log = logging.getLogger("fedmed.server")


def round_record(server: "Server", updates: Sequence[Update], score: float | None, aggregated: bool) -> dict[str, Any]:
    """Describe the server's round.

    Args:
        server: at the end of a round.
        updates: those accepted, sorted by site.
        score: of the model that the round started from.
        aggregated: whether there is a new model.
    """
    sites = {u.site: {"n_steps": u.n_steps, "n_samples": u.n_samples, **u.metrics} for u in updates}
    sent, outcome = sum(extras_bytes(u.extras) for u in updates), server.applied.outcome
    told = sum(server.exchange.received.values())
    return {
        "round": server.round.number,
        "seconds": time.monotonic() - server.round.started,
        "aggregated": aggregated,
        "accepted": [u.site for u in updates],
        "refused": [{"site": s, "reason": r} for s, r in sorted(server.round.refused.items())],
        "warnings": warnings(server, updates),
        "coefficients": outcome.coefficients if outcome else {},
        "geometry": update_geometry(updates, outcome.coefficients) if outcome else {},
        "sites": sites,
        "score": score,
        "bytes_down": server.round.bytes_down,
        "bytes_up": sum(tensor_bytes(u.tensors) for u in updates) + sent + told,
        **extras_record(server, updates, server.round.bytes_extras + told + sent),
        **({"bytes_told": server.exchange.received} if server.exchange.once and told else {}),
        **(outcome.facts if outcome else {}),
    }


def bare_record(server: "Server", updates: Sequence[Update], aggregated: bool) -> dict[str, Any]:
    """Of a round that cannot be described: only who took part."""
    return {
        "round": server.round.number,
        "aggregated": aggregated,
        "accepted": [u.site for u in updates],
        "refused": [{"site": s, "reason": r} for s, r in sorted(server.round.refused.items())],
        "geometry": {},
        "sites": {u.site: {} for u in updates},
    }


def warnings(server: "Server", updates: Sequence[Update]) -> list[dict[str, Any]]:
    """What is unusual in a round, but no reason to stop: collapses, what sites exchange, and what the rule says."""
    found: list[dict[str, Any]] = list(server.exchange.warnings())
    found += [{"site": site, "message": text} for site, text in sorted(server.round.wrong)]
    findings = [server.guard.check(update) for update in updates] if server.guard else []
    found += [asdict(finding) for of_site in findings for finding in of_site]
    reasons = server.applied.outcome.warnings if server.applied.outcome else []
    found += [{"site": ", ".join(sites), "message": reason} for sites, reason in reasons]
    for finding in found:
        log.warning("round %d: site '%s': %s", server.round.number, finding["site"], finding["message"])
    return found


def extras_record(server: "Server", updates: Sequence[Update], size: int) -> dict[str, Any]:
    """Values beside the model: site -> its numbers, and bytes of all in both directions; {} without any."""
    told = {site: plain_metrics(values) for site, values in server.exchange.values.items()}
    for update in updates:
        told[update.site] = told.get(update.site, {}) | plain_metrics(update.extras)
    known = {site: values for site, values in sorted(told.items()) if values}
    return {"extras": known, "bytes_extras": size} if known or size else {}
