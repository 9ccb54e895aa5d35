"""Names that a site may have: in studies, kits, settings and preparations alike.

NVFlare takes a dot for the mark between a site and its parent, and a job with such a name never starts.
"""

import re

PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,199}$"
WORDS = "a site's name: letters a–z, digits, _, and after the first also -; at most 200"


def name_fault(name: str) -> str:
    """Say why a site cannot be called so; "" where it can."""
    return "" if re.fullmatch(PATTERN, name) else f"{name!r} is not {WORDS}"
