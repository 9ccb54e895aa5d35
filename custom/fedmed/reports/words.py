"""Values as a person reads them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

NOTHING = "–"


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested settings to (dotted key, value), in their order."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            rows += flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", NOTHING if value in (None, {}, []) else _plain(value)))
    return rows


def fixed(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def size(n_bytes: float | None) -> str:
    """Bytes in decimal units: 1 kB is 1000 bytes."""
    if n_bytes is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def duration(seconds: float | None) -> str:
    """Seconds as ``42 s``, ``3 min 05 s`` or ``2 h 07 min``."""
    if seconds is None:
        return NOTHING
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"


def model_after(round: int | None) -> str:
    """Name the model that was aggregated after a round, counted from 0; -1 is the starting model."""
    return NOTHING if round is None else "initial model" if round < 0 else f"round {round + 1}"


def mean_of(rounds: Iterable[int]) -> str:
    """Of which rounds' models a model is the mean; rounds are counted from 0."""
    return f"the mean of rounds {join([str(round + 1) for round in rounds])}"


def count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def plain_number(value: float) -> str:
    """Three digits, never with an exponent: ``0.000012``, ``0.53``, ``23.7`` or ``15,800``."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else np.format_float_positional(rounded, trim="-")


def plain_delta(delta: float) -> str:
    """``0.00001``."""
    return f"{delta:.12f}".rstrip("0") if delta >= 1e-11 else f"{delta:g}"


def join(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "none"


def _plain(value: Any) -> str:
    """As it can be written into a study again: YAML takes 1e-05 for a text."""
    if isinstance(value, list | tuple):
        return ", ".join(NOTHING if one is None else _plain(one) for one in value)
    return np.format_float_positional(value, trim="-") if isinstance(value, float) else str(value)
