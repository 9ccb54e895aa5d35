"""What the training at the server did in each round, where a method has one."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.reports.palette import INK, LIGHT
from fedmed.reports.plots import WIDTH, round_axis
from fedmed.reports.run_contents import Run
from fedmed.reports.run_report import Chart
from fedmed.reports.training_scalars import mean
from fedmed.reports.words import duration

DOMAIN, DESCRIPTOR_GAP, FEATURE_GAP = "domain_norm", "descriptor_gap", "feature_gap"
LOSS_PRE, LOSS, SECONDS = "server_loss_pre", "server_loss", "server_seconds"
Line = tuple[str, str]  # label, colour
PANELS: Mapping[str, Mapping[str, Line]] = {
    "Norm of the domain descriptor": {DOMAIN: ("descriptor", INK)},
    "Gap between features": {
        FEATURE_GAP: ("global model to instruments", LIGHT[0]),
        DESCRIPTOR_GAP: ("instruments to moving average", LIGHT[1]),
    },
    "Segmentation loss on made images": {
        LOSS: ("global model", LIGHT[0]),
        LOSS_PRE: ("pre-trained model", LIGHT[1]),
    },
}
HEAD_ROOM = 1.1  # height of a panel, as a multiple of its highest value
CAPTION = (
    "What the server trained after it had averaged, on images of its own. The descriptor holds what the made images "
    "have beside instruments; one that grows without end swallows the instruments too. A gap is the mean squared "
    "difference that a phase makes smaller (Fang et al. 2025, Eq. 11 and 12)."
)


class ServerTrainingSection:
    """The part of a method whose server trains between averaging and sending."""

    def charts(self, run: Run) -> dict[str, Chart]:
        """The descriptor, the gaps and the losses over the rounds, once the server has trained."""
        return {"server_training": Chart(server_training, CAPTION)} if _noted(run, PANELS) else {}

    def columns(self, run: Run) -> dict[str, dict[str, float]]:
        """Sites have no part in it."""
        return {}

    def notes(self, run: Run) -> list[str]:
        """How long it took in a round."""
        took = mean([seconds for _, seconds in server_points(run, SECONDS)])
        return [] if took is None else [f"The server trained for {duration(took)} in a round, in the mean."]


def server_training(run: Run) -> Figure:
    """A panel for each group of numbers that were noted."""
    shown = {title: lines for title, lines in PANELS.items() if _noted(run, {title: lines})}
    figure = Figure(figsize=(WIDTH, 3.2))
    figure.set_layout_engine("constrained", wspace=0.06)
    for axes, (title, lines) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        axes.set_title(title)
        _lines(axes, run, lines)
    return figure


def server_points(run: Run, name: str) -> list[tuple[int, float]]:
    """(Round counted from 1, number) of the rounds that have it."""
    return [(line.index + 1, line.facts[name]) for line in run.rounds if name in line.facts]


def _noted(run: Run, panels: Mapping[str, Mapping[str, Line]]) -> bool:
    return any(server_points(run, name) for lines in panels.values() for name in lines)


def _lines(axes: Axes, run: Run, lines: Mapping[str, Line]) -> None:
    highest = 0.0
    for name, (label, colour) in lines.items():
        if found := server_points(run, name):
            rounds, values = zip(*found, strict=True)
            axes.plot(rounds, values, color=colour, label=label, marker="o", markersize=3)
            highest = max(highest, *values)
    axes.set_ylim(0, HEAD_ROOM * highest or 1)  # room of its own: that of matplotlib is a share of the values' range
    axes.set_xlabel("round")
    round_axis(axes, run, start=1)
    if len(lines) > 1:
        axes.legend(frameon=False)
