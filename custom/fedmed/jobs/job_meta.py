"""A job's description for NVFlare, ``meta.json``, made of a study and of nothing else; and the form of a job's id."""

import re
from collections.abc import Mapping
from typing import Any

from fedmed.errors import JobError
from fedmed.methods.declarations import ROLES, TRAINING_ROLES

PLAIN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$"


def job_meta(name: str, sites: Mapping[str, str], min_clients: int | None) -> dict[str, Any]:
    """Return ``meta.json``: who gets which app, and how many sites are needed.

    Args:
        min_clients: accepted updates that a round needs; None = one of every training site.
    """
    of_role = {role: sorted(site for site, its in sites.items() if its == role) for role in ROLES}
    deploy = {"app_server": ["server"], **{f"app_{role}": given for role, given in of_role.items() if given}}
    needed = sum(len(of_role[role]) for role in TRAINING_ROLES) if min_clients is None else min_clients
    return {"name": name, "resource_spec": {}, "min_clients": needed, "deploy_map": deploy}


def check_plain(id: object) -> str:
    """Return a job's id, if it is one; it may come from the network, and no path may.

    Raises:
        JobError: it is not a plain name.
    """
    if not isinstance(id, str) or not re.fullmatch(PLAIN, id):
        raise JobError(f"{id!r} is not the id of a job; give the name of its folder, without a path")
    return id
