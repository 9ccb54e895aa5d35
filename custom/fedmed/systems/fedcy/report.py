"""By how much each site counted, where some send a part of the model alone."""

from matplotlib.figure import Figure

from fedmed.reports.curves import site_lines, weight_bands
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import Run
from fedmed.reports.run_report import Chart
from fedmed.reports.training_scalars import points
from fedmed.reports.words import join


class SentPartsSection:
    """The part of a method some of whose roles send less than they receive."""

    def charts(self, run: Run) -> dict[str, Chart]:
        """In place of the discs: what sites processed, and their weights as bands."""
        caption = f"{trained_by(run)}The height of a band is the site's share of what was processed."
        return {"aggregation": Chart(shares, caption)} if any(points(run, "n_samples").values()) else {}

    def columns(self, run: Run) -> dict[str, dict[str, float]]:
        return {}

    def notes(self, run: Run) -> list[str]:
        return []


def shares(run: Run) -> Figure:
    """Chart of the frames that each site processed in a round, and its weight in the part that all sites send."""
    figure = Figure(figsize=(WIDTH, 3.5))
    figure.set_layout_engine("constrained", wspace=0.06)
    processed, bands = figure.subplots(1, 2)
    processed.set_title("Frames processed in a round")
    frames = points(run, "n_samples")
    processed.set_ylim(0, 1.06 * max(value for of_site in frames.values() for _, value in of_site))
    site_lines(processed, run, frames, start=1)
    weight_bands(bands, run)
    return figure


def trained_by(run: Run) -> str:
    """Of whom the model's parts are, in sentences; empty where all send the same."""
    less = {role for role, made in run.method.roles().items() if made.sends}
    trained = [site for site in run.sites if any(site.name in line.sites for line in run.rounds)]
    some = [site.name for site in trained if site.role in less]
    others = [site.name for site in trained if site.role not in less]
    if not some or not others:
        return ""
    sends, rest = "sends" if len(some) == 1 else "send", "that of" if len(others) == 1 else "the mean of those of"
    return f"{join(some)} {sends} the features alone, which are averaged; the rest is {rest} {join(others)}. "
