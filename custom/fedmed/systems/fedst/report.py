"""Parts of a report that FedST alone has: channel gates, and the training at the server."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.reports.palette import INK, LIGHT, PAPER
from fedmed.reports.plots import WIDTH, round_axis
from fedmed.reports.run_contents import Run
from fedmed.reports.run_files import read_arrays
from fedmed.reports.run_report import Chart
from fedmed.reports.sheet import SLANTED, draw_cells
from fedmed.reports.training_scalars import mean
from fedmed.reports.words import duration
from fedmed.training.kept_features import GATES_FILE

Gates = Mapping[str, NDArray[np.float64]]  # site -> mean gate of each channel (C,), 0…1
GATES_CAPTION = (
    "The gates of the channel selection, mean over the frames of each site's test videos: a column is a channel, dark "
    "where it is let through twice as strongly; channels are in the order of how much the sites differ. Right, the "
    "mean difference between the gates of two sites. Gates are made by layers and words that stay at the site, so no "
    "site sends them: this chart is there where the sites' own folders are, as after a simulation, and at each site."
)
Lines = Mapping[str, tuple[str, str]]  # number of a round -> label, colour
PANELS: Mapping[str, Lines] = {
    "Norm of the domain descriptor": {"domain_norm": ("descriptor", INK)},
    "Gap between features": {
        "feature_gap": ("global model to instruments", LIGHT[0]),
        "descriptor_gap": ("instruments to moving average", LIGHT[1]),
    },
    "Segmentation loss on made images": {
        "server_loss": ("global model", LIGHT[0]),
        "server_loss_pre": ("pre-trained model", LIGHT[1]),
    },
}
HEAD_ROOM = 1.1  # height of a panel, as a multiple of its highest value
TRAINING_CAPTION = (
    "What the server trained after it had averaged, on images of its own. The descriptor holds what the made images "
    "have beside instruments; one that grows without end swallows the instruments too. A gap is the mean squared "
    "difference that a phase makes smaller (Fang et al. 2025, Eq. 11 and 12)."
)


class ChannelGatesSection:
    """The part of a method whose sites weigh channels by private layers (Fang et al. 2025, Eq. 7)."""

    def charts(self, run: Run) -> dict[str, Chart]:
        gates = site_gates(run)
        return {"gates": Chart(lambda _: gates_figure(gates), GATES_CAPTION)} if gates else {}

    def columns(self, run: Run) -> dict[str, dict[str, float]]:
        """None: a number of a site's would leave it."""
        return {}

    def notes(self, run: Run) -> list[str]:
        return []


def site_gates(run: Run) -> dict[str, NDArray[np.float64]]:
    """Site -> mean gates (C,), of the sites whose folders are here and hold as many channels as the first of them.

    Raises:
        DataError: a file is damaged; names it.
    """
    folders = {site.name: site.folder / "evaluation" / f"{GATES_FILE}.npz" for site in run.sites if site.folder}
    gates = {name: _read(path) for name, path in folders.items() if path.is_file()}
    return gates if len({len(of_site) for of_site in gates.values()}) == 1 else {}


def _read(path: Path) -> NDArray[np.float64]:
    (mean,) = read_arrays(path, ["mean"])
    if mean.ndim != 1 or not len(mean) or not ((mean >= 0) & (mean <= 1)).all():
        raise DataError(f"{path}: 'mean' is not a row of numbers from 0 to 1; evaluate the site again")
    return mean.astype(np.float64)


def gates_figure(gates: Gates) -> Figure:
    """Left the gates, a row a site; right, of two sites or more, how far those of each two are apart."""
    names, values = list(gates), np.stack(list(gates.values()))
    ordered = values[:, np.argsort(-values.std(axis=0), kind="stable")]
    several = len(names) > 1
    figure = Figure(figsize=(WIDTH, 1.5 + 0.42 * len(names)))
    figure.set_layout_engine("constrained", wspace=0.06)
    panels = figure.subplots(1, 1 + several, squeeze=False, width_ratios=[2.4, 1][: 1 + several])[0]
    shades = LinearSegmentedColormap.from_list("gates", [PAPER, LIGHT[0], INK])
    drawn = panels[0].imshow(ordered, cmap=shades, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    figure.colorbar(drawn, ax=panels[0], ticks=[0, 0.5, 1], pad=0.01)
    panels[0].set_title("Gates of the channels")
    panels[0].set_yticks(range(len(names)), names, color=INK)
    panels[0].set_xlabel(f"{values.shape[1]} channels, those in which sites differ most first")
    panels[0].grid(visible=False)
    if several:
        apart = np.abs(values[:, None] - values[None]).mean(axis=2)
        texts = [[f"{value:.2f}" for value in line] for line in apart]
        for place in range(len(names)):
            texts[place][place] = ""
        strengths = np.where(np.eye(len(names)) > 0, np.nan, apart / max(float(apart.max()), 1e-9))
        draw_cells(panels[1], texts, strengths, np.zeros_like(apart))
        panels[1].set_title("Mean difference of two sites")
        panels[1].set_xticks(range(len(names)), names, **SLANTED)
        panels[1].set_yticks([])
    return figure


class ServerTrainingSection:
    """The part of a method whose server trains between averaging and sending."""

    def charts(self, run: Run) -> dict[str, Chart]:
        return {"server_training": Chart(server_training, TRAINING_CAPTION)} if _noted_panels(run) else {}

    def columns(self, run: Run) -> dict[str, dict[str, float]]:
        return {}

    def notes(self, run: Run) -> list[str]:
        took = mean([seconds for _, seconds in server_points(run, "server_seconds")])
        return [] if took is None else [f"The server trained for {duration(took)} in a round, in the mean."]


def server_training(run: Run) -> Figure:
    shown = _noted_panels(run)
    figure = Figure(figsize=(WIDTH, 3.2))
    figure.set_layout_engine("constrained", wspace=0.06)
    for axes, (title, lines) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        axes.set_title(title)
        _lines(axes, run, lines)
    return figure


def server_points(run: Run, name: str) -> list[tuple[int, float]]:
    """(Round counted from 1, number) of the rounds that have it."""
    return [(line.index + 1, line.facts[name]) for line in run.rounds if name in line.facts]


def _noted_panels(run: Run) -> dict[str, Lines]:
    """Those panels of which the run has a number."""
    noted = {name for line in run.rounds for name in line.facts}
    return {title: lines for title, lines in PANELS.items() if noted & lines.keys()}


def _lines(axes: Axes, run: Run, lines: Lines) -> None:
    highest = 0.0
    for name, (label, colour) in lines.items():
        if points := server_points(run, name):
            rounds, values = zip(*points, strict=True)
            axes.plot(rounds, values, color=colour, label=label, marker="o", markersize=3)
            highest = max(highest, *values)
    axes.set_ylim(0, HEAD_ROOM * highest or 1)  # room of its own: that of matplotlib is a share of the values' range
    axes.set_xlabel("round")
    round_axis(axes, run, start=1)
    if len(lines) > 1:
        axes.legend(frameon=False)
