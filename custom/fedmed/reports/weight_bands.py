"""By how much each site counted in each round, as bands."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedmed.reports.curves import end_labels
from fedmed.reports.palette import PAPER, site_colours
from fedmed.reports.plots import round_axis
from fedmed.reports.run_contents import Run


def weight_bands(axes: Axes, run: Run) -> None:
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
    edges = np.array([[line.index + 0.5, line.index + 1.5] for line in run.rounds]).ravel()
    look: dict[str, Any] = {"edgecolor": PAPER, "linewidth": 0.8, "alpha": 0.85}
    for place, name in enumerate(sites):
        low, high = tops[:, place] - shares[:, place], tops[:, place]
        axes.fill_between(edges, np.repeat(low, 2), np.repeat(high, 2), facecolor=colours[name], **look)
    middles = tops[-1] - shares[-1] / 2
    end_labels(axes, [(middles[i], name, colours[name]) for i, name in enumerate(sites)])
