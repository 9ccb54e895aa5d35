"""Count of the rows of a list's tables that show each tool, and what follows where that is none or all."""

from collections.abc import Iterable, Mapping, Sequence

from fedmed.data.prepare.case import VideoCase
from fedmed.data.prepare.report import listed

NEVER = {
    "training": "a model learns here that it is never there; its positive weight is the number of frames, or the cap",
    "validation": "its F1 there is 0, or left out of the mean (absent: zero or skip)",
    "testing": "its F1 there is 0, or left out of the mean (absent: zero or skip), and it has no average precision",
}
ALWAYS = {
    "training": "its positive weight is 0, so nothing of it is learnt here",
    "validation": "whoever always calls it is right",
    "testing": "whoever always calls it is right, so its scores say nothing",
}


Counts = Mapping[str, tuple[int, Mapping[str, int]]]  # list -> rows of its tables, and tool -> rows that show it


def tool_counts(cases: Sequence[VideoCase]) -> Counts:
    """The counts of each list with tables of tools."""
    return {name: added((case.rows, case.shown) for case in members) for name, members in listed(cases).items()}


def added(tables: Iterable[tuple[int, Mapping[str, int]]]) -> tuple[int, Mapping[str, int]]:
    """The counts of several tables together; those without tools do not count."""
    known = [(rows, shown) for rows, shown in tables if shown]
    tools = dict.fromkeys(tool for _, shown in known for tool in shown)
    return sum(rows for rows, _ in known), {tool: sum(shown.get(tool, 0) for _, shown in known) for tool in tools}


def shares_of_tools(counts: Counts) -> list[str]:
    """A line for each list: in which share of the rows of its tables each tool is there."""
    shares = {name: [f"{tool} {n / rows:.1%}" for tool, n in shown.items()] for name, (rows, shown) in counts.items()}
    return [f"{name}: {', '.join(parts)}" for name, parts in shares.items() if parts]


def one_sided(counts: Counts) -> list[str]:
    """A sentence for each list and tool that no row of its tables shows, or every row, with what follows from it."""
    sentences = []
    for name, (rows, shown) in counts.items():
        for tool, number in shown.items():
            if name in NEVER and number in (0, rows):
                often, follows = ("no frame", NEVER[name]) if number == 0 else ("every frame", ALWAYS[name])
                sentences.append(f"{often} of '{name}' shows the tool '{tool}': {follows}")
    return sentences
