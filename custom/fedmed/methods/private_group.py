"""What of a model stays at a site: a private group of layers, lent layers, statistics of normalisation."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedmed.aggregation.sharing import FULL
from fedmed.methods.declarations import EVALUATED, SUPERVISED, Role

ALL_SITES = "all"  # in place of one site: the mean of what all labelled sites release
Buffers = str | Mapping[Any, str]  # one of the policies, or role -> policy


def private_roles(group: str, overlays: tuple[str, ...] = ()) -> dict[str, Role]:
    """Sites with labels, which train with these overlays, and those that are only scored; ``full``: all is shared."""
    stays = None if group == FULL else group
    labelled = replace(SUPERVISED, least=1, overlays=overlays, receives=stays)
    return {"supervised": labelled, "evaluate": replace(EVALUATED, receives=stays)}


def said_elsewhere(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys of a study that say what stays at the sites beside the method, as :meth:`Method.contradictions`."""
    for key, name in (("sharing", "sharing"), ("warm_start", "warm_start.sharing")):
        if "sharing" in (said if key == "sharing" else said.get(key, {})):
            yield key, f"'{name}': what stays at the sites is said as 'method.args.group'; leave it out"


def what_stays(group: str) -> tuple[str, ...]:
    """For a site that wants to know, in sentences."""
    if group == FULL:
        return ()
    return (f"The layers of the sharing group '{group}' never leave the site, unless it allows their release itself.",)


def lent_by(owner: str) -> str:
    """Whose private layers scored a site that has none of its own, after ``scored``."""
    return "with the mean of the sites' private layers" if owner == ALL_SITES else f"with {owner}'s decoder"


def of_role(buffers: Buffers, role: str) -> str:
    """The policy of a role; ``average`` where none is said. Sites that are only scored have that of labelled ones."""
    if isinstance(buffers, str):
        return buffers
    return buffers.get(role, buffers.get("supervised", "average") if role == "evaluate" else "average")


def at_server(buffers: Buffers) -> str:
    """How the server takes the statistics that it is sent: ``average``, ``pooled``, or ``local`` where nobody sends."""
    found = {of_role(buffers, role) for role in ("supervised", "unsupervised")}
    known = (policy for policy in ("pooled", "average", "local") if policy in found)
    return next(known, min(found))  # the rule refuses what is no policy
