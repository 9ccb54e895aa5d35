"""Count of the rows of each phase in a list's tables, and what follows where a phase is missing or alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fedmed.data.prepare.case import VideoCase
from fedmed.data.prepare.report import listed

MISSING = {
    "training": "nothing is learnt of it here",
    "validation": "models are chosen without it",
    "testing": "nothing is said of it",
}

Counts = Mapping[str, Mapping[str, int]]  # list -> phase -> rows


def phase_counts(cases: Sequence[VideoCase]) -> Counts:
    """The counts of each list with tables of phases."""
    return {name: added(case.lasting for case in members) for name, members in listed(cases).items()}


def added(tables: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """The counts of several tables together."""
    total: Counter[str] = Counter()
    for table in tables:
        total.update(table)
    return total


def shares_of_phases(counts: Counts) -> list[str]:
    """A line for each list: which share of the rows of its tables is of each phase."""
    shares = {
        name: [f"{phase} {n / sum(rows.values()):.1%}" for phase, n in rows.items() if n]
        for name, rows in counts.items()
    }
    return [f"{name}: {', '.join(parts)}" for name, parts in shares.items() if parts]


def alone(counts: Counts) -> dict[str, str]:
    """A list all of whose rows are of one phase -> that phase."""
    present = {name: [phase for phase, n in rows.items() if n] for name, rows in counts.items()}
    return {name: phases[0] for name, phases in present.items() if len(phases) == 1}


def missing(counts: Counts, phases: Sequence[str]) -> list[str]:
    """A sentence for each list with tables and each phase that none of their rows is of, with what follows."""
    return [
        f"no row of '{name}' is of the phase '{phase}': {MISSING[name]}"
        for name, rows in counts.items()
        for phase in phases
        if name in MISSING and any(rows.values()) and not rows.get(phase)
    ]
