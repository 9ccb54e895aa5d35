"""One seed for each purpose, the same in every process and on every machine."""

import hashlib


def derive_seed(base: int, *parts: str | int) -> int:
    """Return a seed in [0, 2**31) that depends on ``base`` and on every part, in order.

    Python's ``hash`` is salted per process; a SHA-256 of the parts is not.

    Example:
        >>> derive_seed(0, "site_a", 3, "sampling") == derive_seed(0, "site_a", 3, "sampling")
        True
    """
    text = "\x1f".join(str(part) for part in (base, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 2**31
