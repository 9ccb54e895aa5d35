"""Markdown of texts that were written for a terminal or an editor."""

import re
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside of a cell is part of it."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def literal(text: str) -> str:
    """Return a text in which only code is Markdown: <site> is no tag, and [a] no link."""
    parts = text.replace("``", "`").split("`")
    return "`".join(part if i % 2 else re.sub(r"([<*\[\]])", r"\\\1", part) for i, part in enumerate(parts))


def one_line(text: str) -> str:
    return literal(" ".join(text.split()))
