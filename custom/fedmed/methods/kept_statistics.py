"""What a study says of BatchNorm's statistics, ``buffers``, for each role."""

from collections.abc import Mapping
from typing import Any

Buffers = str | Mapping[Any, str]  # one of the policies, or role -> policy


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
