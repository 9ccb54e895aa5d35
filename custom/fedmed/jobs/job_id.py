"""Ids of jobs."""

import re

from fedmed.errors import JobError

PLAIN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$"


def check_plain(id: object) -> str:
    """Return a job's id, if it is one; it may come from the network, and no path may.

    Raises:
        JobError: it is not a plain name.
    """
    if not isinstance(id, str) or not re.fullmatch(PLAIN, id):
        raise JobError(f"{id!r} is not the id of a job; give the name of its folder, without a path")
    return id
