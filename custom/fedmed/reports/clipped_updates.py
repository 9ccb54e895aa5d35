"""What a report says of updates that the server cut to a norm."""

import math
from dataclasses import dataclass
from statistics import median_high

from fedmed.reports.run import Run
from fedmed.reports.run_files import number
from fedmed.reports.words import NOTHING, count, join


@dataclass(frozen=True)
class ClipRow:
    """A site's updates at a server that bounds them, as text: their norms, and what was cut."""

    site: str
    median: str
    largest: str
    cut: str
    left: str


def clip_rows(run: Run) -> list[ClipRow]:
    """One row a site whose updates the server measured; none where the job sets no ``clip_norm``."""
    rows = []
    for site in run.sites:
        lines = [line for line in run.rounds if site.name in line.norms]
        if not lines:
            continue
        found = sorted(math.inf if (norm := line.norms[site.name]) is None else norm for line in lines)
        left = [line.clipped[site.name] for line in lines if site.name in line.clipped]
        middle, largest = (f"{norm:.3g}" if norm < math.inf else "overflow" for norm in (median_high(found), found[-1]))
        cut = f"{len(left)} of {count(len(lines), 'round')}"
        rows.append(ClipRow(site.name, middle, largest, cut, f"{100 * min(left):.3g} %" if left else NOTHING))
    return rows


def clip_note(run: Run) -> str:
    """What the server bounds, and whom that concerned; empty where it bounds nothing."""
    rows, bound = clip_rows(run), number((run.config.get("aggregator") or {}).get("clip_norm"))
    if not rows or bound is None:
        return ""
    cut = [row.site for row in rows if row.left != NOTHING]
    whom = f"That happened to {join(cut)}" if cut else "No update was longer"
    return f"The server cuts every update to a norm of {bound:g} (clip_norm). {whom}."
