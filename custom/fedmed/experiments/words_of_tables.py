"""Numbers and Markdown of an experiment's tables."""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev

from fedmed.reports.words import NOTHING, count


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], rule: Sequence[str] | None = None) -> list[str]:
    """Lines of a table; ``rule`` is the line below its head."""
    lines = [head, rule or ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def signed(value: float, digits: int) -> str:
    """``+0.012``, ``−0.012`` with a true minus, ``0.000`` for what rounds to it."""
    text = f"{abs(value):.{digits}f}"
    return text if not float(text) else ("+" if value > 0 else "−") + text


def probability(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"


def bold_if(value: float, best: str | None) -> str:
    """Three digits; bold if they read the same as the best's."""
    printed = f"{value:.3f}"
    return f"**{printed}**" if printed == best else printed


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; None for one seed."""
    return mean(values), stdev(values) if len(values) > 1 else None


def seeds_phrase(n_seeds: Iterable[int]) -> str:
    """What the numbers are, from the seeds of each: ``mean ± standard deviation over 5 seeds``."""
    numbers = sorted(set(n_seeds))
    if numbers == [1]:
        return "one seed"
    most = f"{numbers[0]} to {numbers[-1]} seeds" if len(numbers) > 1 else count(numbers[0], "seed")
    return f"mean ± standard deviation over {most}"
