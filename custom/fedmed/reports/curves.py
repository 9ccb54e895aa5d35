"""Curves over the rounds of a run, and bands of how much each site counts."""

from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.methods.declarations import LOSS, Scalar
from fedmed.reports.palette import INK, MUTED, PAPER, site_colours
from fedmed.reports.plots import panels_of, round_axis
from fedmed.reports.run_contents import Run
from fedmed.reports.run_files import number
from fedmed.reports.training_scalars import Points, points, reported

DASHES = {"supervised": "-", "unsupervised": (0, (4, 1.6)), "evaluate": (0, (1, 1.4))}


def curves(run: Run) -> Figure:
    """A panel for the loss, for the score of the validation lists, and for each other number of the training."""
    scalars = reported(run)
    figure, panels = panels_of(len(scalars) + run.validated, height=3.5, across=3, wspace=0.06)
    _scalar(panels.pop(0), run, LOSS)
    if run.validated:
        _scores(panels.pop(0), run)
    for axes, scalar in zip(panels, scalars[1:], strict=True):
        _scalar(axes, run, scalar)
    return figure


def updates(run: Run) -> Figure:
    """Two panels on how the sites' updates of a round lie to their mean: cosine, and squared distance."""
    figure, (alike, apart) = panels_of(2, height=3.5, wspace=0.06)
    alike.set_title("Cosine to the mean update")
    cosines, distances = points(run, "cosine", of="geometry"), points(run, "distance", of="geometry")
    alike.set_ylim(min([0.0, *(value for _, value in chain(*cosines.values()))]), 1.0)
    apart.set_title("Squared distance to the mean update")
    apart.set_ylim(0.0, 1.06 * max((value for _, value in chain(*distances.values())), default=1.0) or 1.0)
    site_lines(alike, run, cosines, start=1)
    site_lines(apart, run, distances, start=1)
    return figure


def _scalar(axes: Axes, run: Run, scalar: Scalar) -> None:
    axes.set_title("Training loss" if scalar == LOSS else scalar.label[0].upper() + scalar.label[1:])
    series = points(run, scalar.name)
    values = [value for of_site in series.values() for _, value in of_site] or [1.0]
    low = min(0.0, *values)
    high = 1.0 if scalar.unit == "share" and scalar.better == "higher" else low + 1.06 * (max(values) - low or 1.0)
    axes.set_ylim(low, high)
    site_lines(axes, run, series, start=1)


def _scores(axes: Axes, run: Run) -> None:
    axes.set_title(f"Validation {run.score.label}")
    axes.set_ylim(0, 1)
    site_lines(axes, run, site_score_points(run), start=0)
    axes.set_xlabel("rounds behind the model (0: initial)")
    _mean_and_choice(axes, run)


def site_score_points(run: Run) -> Points:
    """Site -> (rounds behind the model, its score on the site's validation list), the last aggregate included."""
    series = points(run, run.score.validation, offset=0)
    for site in run.sites:
        if site.closing_score is not None:
            series[site.name].append((run.total_rounds, site.closing_score))
    return series


def score_points(run: Run) -> list[tuple[float, float]]:
    """(rounds behind the model, mean validation score of the labelled sites)."""
    means = [(float(r.index), r.score) for r in run.rounds if r.score is not None]
    last = number((run.result or {}).get("last_score"))
    return means if last is None else [*means, (float(run.total_rounds), last)]


def site_lines(axes: Axes, run: Run, series: Points, start: int) -> None:
    """A line for each site, over the rounds from ``start`` on; the limits of y are set before."""
    colours = site_colours([site.name for site in run.sites])
    mixed = len({site.role for site in run.sites if series.get(site.name)}) > 1  # dashes only tell roles apart
    ends = []
    for site in run.sites:
        if of_site := series.get(site.name):
            x, y = np.array(of_site).T
            marked = len(x) <= 15
            axes.plot(
                *(x, y),
                color=colours[site.name],
                linestyle=DASHES.get(site.role, "-") if mixed else "-",
                linewidth=1.8,
                marker="o",
                markersize=4.2 if marked else 4.8,
                markevery=None if marked else [len(x) - 1],
                markeredgewidth=0,
                clip_on=False,
            )
            ends.append((y[-1], site.name, colours[site.name]))
    if ends:
        end_labels(axes, ends)
    else:
        axes.text(0.5, 0.5, "nothing was reported", transform=axes.transAxes, ha="center", color=MUTED)
    axes.set_xlabel("round")
    round_axis(axes, run, start)


def end_labels(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Name each line at its right end; labels that would touch are moved apart, and keep the lines' order."""
    low, high = axes.get_ylim()
    places = spread([(value - low) / (high - low) for value, *_ in ends], gap=0.066)
    look: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
    look |= {"fontsize": 9, "fontweight": "bold", "annotation_clip": False}
    for (_, name, colour), place in zip(ends, places, strict=True):
        axes.annotate(name, (1.0, place), (9, 0), color=colour, **look)


def spread(places: list[float], gap: float) -> list[float]:
    """Move places (0..1) apart so that neighbours are at least ``gap`` away, order kept, as near as possible."""
    order, steps = np.argsort(places, kind="stable"), gap * np.arange(len(places))
    moved = np.maximum.accumulate(np.asarray(places)[order] - steps) + steps  # upwards,
    placed = np.empty_like(moved)
    placed[order] = np.minimum(moved, 1 - steps[::-1])  # and down again where that went beyond 1
    result: list[float] = placed.tolist()
    return result


def _mean_and_choice(axes: Axes, run: Run) -> None:
    means = score_points(run)
    if len(run.by_role("supervised")) > 1 and means:
        x, y = np.array(means).T
        axes.plot(x, y, color=INK, linewidth=1.0, alpha=0.55, zorder=1)
    result = run.result or {}
    best, score = number(result.get("best_round")), number(result.get("best_score"))
    if best is None or score is None:
        return
    axes.plot(best + 1, score, marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK, zorder=5)
    # The label stands where no curve is: at the foot of a high point, at the top above a low one.
    foot, near, far = (0.0, score - 0.035, 0.02) if score > 0.35 else (1.0, score + 0.035, 0.98)
    axes.plot([best + 1] * 2, [near, far], color=INK, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    right = best + 1 > run.total_rounds / 2
    look: dict[str, Any] = {"textcoords": "offset points", "ha": "right" if right else "left", "va": "center"}
    offset = (-7 if right else 7, 9 - 18 * foot)
    of = f"mean of {len(rounds)} rounds" if (rounds := result.get("mean_of")) else "selected"
    axes.annotate(f"{of}, mean {score:.3f}", (best + 1, foot), offset, fontsize=9, **look)


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
