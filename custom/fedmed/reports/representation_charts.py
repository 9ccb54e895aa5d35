"""How much a round changed what a site's model sees, and what weight that gave the site."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.reports.curves import end_labels, rounds
from fedmed.reports.palette import PAPER, site_colours
from fedmed.reports.plots import WIDTH, round_axis
from fedmed.reports.run import Run

RSA = "rsa"  # the scalar that a site sends beside its update
FLAT = 1e-3  # a range of r below which its axis shows no more detail


def changes(run: Run) -> dict[str, list[tuple[float, float]]]:
    """Site -> (round counted from 1, r): the rank correlation of its images' distances before and after training."""
    found: dict[str, list[tuple[float, float]]] = {site.name: [] for site in run.sites}
    for line in run.rounds:
        for name, told in line.extras.items():
            if name in found and told.get(RSA) is not None:
                found[name].append((line.index + 1, told[RSA]))
    return {name: points for name, points in found.items() if points}


def weights(run: Run) -> Figure:
    """The representation that each site kept in a round, and the weights of the aggregation as bands."""
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06)
    kept, bands = figure.subplots(1, 2)
    _kept(kept, run, changes(run))
    _bands(bands, run)
    return figure


def _kept(axes: Axes, run: Run, told: dict[str, list[tuple[float, float]]]) -> None:
    axes.set_title("Representation kept in a round, r")
    low = min(r for points in told.values() for _, r in points)
    span = max(1.0 - low, FLAT)
    axes.set_ylim(1.0 - 1.08 * span, 1.0)
    rounds(axes, run, {site.name: told.get(site.name, []) for site in run.sites}, start=1)


def _bands(axes: Axes, run: Run) -> None:
    """Each site's weight as the height of its band; rounds are as wide as they are apart."""
    axes.set_title("Weight in the aggregate")
    sites = [site.name for site in run.sites if any(site.name in line.coefficients for line in run.rounds)]
    colours = site_colours([site.name for site in run.sites])
    axes.set_ylim(0, 1)
    axes.set_xlabel("round")
    round_axis(axes, run, start=1)
    if not sites:
        return
    axes.set_xlim(0.5, max(run.total_rounds, 1) + 0.5)
    shares = np.array([[max(line.coefficients.get(name, 0.0), 0.0) for name in sites] for line in run.rounds])
    tops = np.cumsum(shares, axis=1)
    for place, name in enumerate(sites):
        _band(axes, run, tops[:, place] - shares[:, place], tops[:, place], colours[name])
    middles = tops[-1] - shares[-1] / 2
    end_labels(axes, [(middles[i], name, colours[name]) for i, name in enumerate(sites)])


def _band(axes: Axes, run: Run, bottom: np.ndarray, top: np.ndarray, colour: str) -> None:
    edges = np.array([[line.index + 0.5, line.index + 1.5] for line in run.rounds]).ravel()
    look: dict[str, Any] = {"facecolor": colour, "edgecolor": PAPER, "linewidth": 0.8, "alpha": 0.85}
    axes.fill_between(edges, np.repeat(bottom, 2), np.repeat(top, 2), **look)
