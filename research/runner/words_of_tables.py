"""Numbers and Markdown of an experiment's tables."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from fedmed.plain_text import in_csv
from fedmed.reports.words import NOTHING, count


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], rule: str | None = None) -> list[str]:
    """Lines of a table; ``rule`` is the line below its head."""
    lines = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head))]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return lines if rule is None else [lines[0], rule, *lines[2:]]


def csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as a file."""
    return bytes(table.map(in_csv).rename(columns=in_csv).to_csv(index=False, lineterminator="\n").encode())


def signed(value: float, digits: int) -> str:
    """``+0.012``, ``−0.012`` with a true minus, ``0.000`` for what rounds to it."""
    text = f"{abs(value):.{digits}f}"
    return text if not float(text) else ("+" if value > 0 else "−") + text


def span(low: float | None, high: float | None) -> str:
    """An interval of a difference, if there is one: ``+0.012 to +0.034``."""
    return NOTHING if low is None or high is None else f"{signed(low, 3)} to {signed(high, 3)}"


def cannot_tell(units: int, word: str) -> str:
    """Words in place of a p or an interval: ``4 videos cannot tell``."""
    return f"{count(units, word)} cannot tell"


def probability(p: float | None) -> str:
    """A p of three digits."""
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def percent(fraction: float) -> str:
    """``3 %``."""
    return f"{100 * fraction:g} %"


def mean_cell(mean: float, std: float, best: str | None) -> str:
    """``0.812 ± 0.004``, the mean bold if it reads the same as the best one; no deviation where it is NaN."""
    printed = f"{mean:.3f}"
    printed = f"**{printed}**" if printed == best else printed
    return printed if np.isnan(std) else f"{printed} ± {std:.3f}"


def several(numbers: Iterable[int], word: str) -> str:
    """``1 seed``, ``5 seeds``, or ``3 to 5 seeds``."""
    several = sorted(set(numbers)) or [0]
    return count(several[0], word) if len(several) == 1 else f"{several[0]} to {several[-1]} {word}s"


def seeds_phrase(n_seeds: Iterable[int]) -> str:
    """Words for what the numbers are, from the seeds of each: ``mean ± standard deviation over 5 seeds``."""
    words = several(n_seeds, "seed")
    return "one seed" if words == "1 seed" else f"mean ± standard deviation over {words}"
