"""Part of a report: how much a round changed what a site's model sees, and what weight that gave the site."""

from matplotlib.figure import Figure

from fedmed.reports.curves import site_lines, weight_bands
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import Run
from fedmed.reports.run_report import Chart
from fedmed.reports.training_scalars import Points, last_values, mean, points
from fedmed.reports.words import join, size

FLAT = 1e-3  # a range of r below which its axis shows no more detail
MEANING = (
    "r says how much of a site's representation a round of local training kept: the rank correlation between the "
    "distances of its images before and after; 1 means unchanged. The height of a band is the site's weight in the "
    "aggregate of that round"
)
ADAPTIVE = ": the more a site's model changed, the more it weighs"


class RepresentationSection:
    """The part of a method whose sites send r with their updates, the value that it declares for them."""

    def charts(self, run: Run) -> dict[str, Chart]:
        """In place of the discs: r, and the weights as bands."""
        caption = f"{MEANING}{ADAPTIVE if run.method.with_update(needed=True) else ''}."
        return {"aggregation": Chart(weights, caption)} if any(changes(run).values()) else {}

    def columns(self, run: Run) -> dict[str, dict[str, float]]:
        last = last_values(changes(run))
        return {"r": last} if last else {}

    def notes(self, run: Run) -> list[str]:
        return [note] if (note := exchange_note(run)) else []


def changes(run: Run) -> Points:
    """Site -> (round counted from 1, r): the rank correlation of its images' distances before and after training."""
    names = run.method.with_update()
    return points(run, names[0], of="extras") if names else {}


def weights(run: Run) -> Figure:
    """The representation that each site kept in a round, and the weights of the aggregation as bands."""
    figure = Figure(figsize=(WIDTH, 3.5))
    figure.set_layout_engine("constrained", wspace=0.06)
    changed, bands = figure.subplots(1, 2)
    changed.set_title("Representation kept in a round, r")
    similarities = changes(run)
    span = max(1.0 - min(r for of_site in similarities.values() for _, r in of_site), FLAT)
    changed.set_ylim(1.0 - 1.08 * span, 1.0)
    site_lines(changed, run, similarities, start=1)
    weight_bands(bands, run)
    return figure


def exchange_note(run: Run) -> str:
    """Note of what the sites sent each other besides their models; empty where the method asks for nothing."""
    exchange = run.method.exchange()
    if not exchange.names:
        return ""
    first, names = exchange.first_round, list(exchange.names)
    begun = [line for line in run.rounds if line.index >= first]
    note = f"From round {first + 1} on, sites are asked for a summary of their features ({join(names)})"
    if not begun:
        return f"{note}; the run {'has not come so far' if run.result is None else 'ended before that'}."
    sent = mean([line.extras_bytes for line in begun])
    if not sent:
        return f"{note}; none came."
    note += f", from which the others draw synthetic negatives: {size(sent)} a round, both ways together."
    answered = {site for line in begun for site, values in line.extras.items() if set(names) & set(values)}
    silent = [site.name for site in run.sites if site.name not in answered]
    return f"{note} No summary came from {join(silent)}." if answered and silent else note
