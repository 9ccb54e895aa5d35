"""What methods say whose sites keep the layers of a sharing group to themselves."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedmed.aggregation.sharing import FULL
from fedmed.methods.declarations import EVALUATED, SUPERVISED, Role


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
