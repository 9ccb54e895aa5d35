"""Loss, validation score and contrastive accuracy of each site over the rounds."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.reports.palette import INK, MUTED, site_colours
from fedmed.reports.plots import WIDTH, round_axis
from fedmed.reports.run import Run
from fedmed.reports.run_files import number

DASHES = {"supervised": "-", "unsupervised": (0, (4, 1.6)), "evaluate": (0, (1, 1.4))}


def curves(run: Run) -> Figure:
    """Training loss of each site over the rounds; beside it validation score and contrastive accuracy, if any."""
    drawn = [_losses]
    drawn += [_scores] if run.validated else []
    drawn += [_contrastive] if any(contrastive_points(run).values()) else []
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    panels = figure.subplots(1, len(drawn), squeeze=False)[0]
    figure.get_layout_engine().set(wspace=0.06)
    for axes, draw in zip(panels, drawn, strict=True):
        draw(axes, run)
    return figure


def _losses(axes: Axes, run: Run) -> None:
    axes.set_title("Training loss")
    losses = loss_points(run)
    values = [value for points in losses.values() for _, value in points] or [1.0]
    low = min(0.0, *values)
    axes.set_ylim(low, low + 1.06 * (max(values) - low or 1.0))
    rounds(axes, run, losses, start=1)


def _scores(axes: Axes, run: Run) -> None:
    axes.set_title(f"Validation {run.score.label}")
    axes.set_ylim(0, 1)
    rounds(axes, run, site_score_points(run), start=0)
    axes.set_xlabel("rounds behind the model (0: initial)")
    _mean_and_choice(axes, run)


def _contrastive(axes: Axes, run: Run) -> None:
    axes.set_title("Contrastive accuracy")
    axes.set_ylim(0, 1)
    rounds(axes, run, contrastive_points(run), start=1)


def rounds(axes: Axes, run: Run, points: dict[str, list[tuple[float, float]]], start: int) -> None:
    """A line for each site, over the rounds from ``start`` on; the limits of y are set before."""
    _lines(axes, run, points)
    axes.set_xlabel("round")
    round_axis(axes, run, start)


def loss_points(run: Run) -> dict[str, list[tuple[float, float]]]:
    """Site -> (round counted from 1, mean training loss); rounds without one are left out."""
    return _points(run, "train_loss", offset=1)


def contrastive_points(run: Run) -> dict[str, list[tuple[float, float]]]:
    """Site -> (round counted from 1, share of views whose nearest key was the right one)."""
    return _points(run, "train_contrastive_accuracy", offset=1)


def site_score_points(run: Run) -> dict[str, list[tuple[float, float]]]:
    """Site -> (rounds behind the model, its score on the site's validation list), the last aggregate included."""
    points = _points(run, run.score.validation, offset=0)
    for site in run.sites:
        if site.closing_score is not None:
            points[site.name].append((run.total_rounds, site.closing_score))
    return points


def score_points(run: Run) -> list[tuple[float, float]]:
    """(rounds behind the model, mean validation score of the labelled sites)."""
    points = [(float(r.index), r.score) for r in run.rounds if r.score is not None]
    last = number((run.result or {}).get("last_score"))
    return points if last is None else [*points, (float(run.total_rounds), last)]


def _points(run: Run, key: str, offset: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {site.name: [] for site in run.sites}
    for line in run.rounds:
        for name, values in line.sites.items():
            if name in found and values.get(key) is not None:
                found[name].append((line.index + offset, values[key]))
    return found


def _lines(axes: Axes, run: Run, points: dict[str, list[tuple[float, float]]]) -> None:
    colours = site_colours([site.name for site in run.sites])
    mixed = len({site.role for site in run.sites if points[site.name]}) > 1  # dashes only tell roles apart
    ends = []
    for site in run.sites:
        if points[site.name]:
            x, y = np.array(points[site.name]).T
            _line(axes, x, y, colours[site.name], DASHES.get(site.role, "-") if mixed else "-")
            ends.append((y[-1], site.name, colours[site.name]))
    if ends:
        end_labels(axes, ends)
    else:
        axes.text(0.5, 0.5, "nothing was reported", transform=axes.transAxes, ha="center", color=MUTED)


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, dashes: Any) -> None:
    few = len(x) <= 15
    ends = {"markevery": None if few else [len(x) - 1], "marker": "o", "markersize": 4.2 if few else 4.8}
    axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.8, markeredgewidth=0, clip_on=False, **ends)


def end_labels(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Name each line at its right end; labels that would touch are moved apart, and keep the lines' order."""
    low, high = axes.get_ylim()
    places = spread([(value - low) / (high - low) for value, *_ in ends], gap=0.066)
    for (_, name, colour), place in zip(ends, places, strict=True):
        text = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center", "annotation_clip": False}
        axes.annotate(name, (1.0, place), (9, 0), color=colour, fontsize=9, fontweight="bold", **text)


def spread(places: list[float], gap: float) -> list[float]:
    """Move places (0..1) apart so that neighbours are at least ``gap`` away, order kept, as near as possible."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for before, after in zip(order, order[1:], strict=False):
        moved[after] = max(moved[after], moved[before] + gap)
    excess = max(0.0, moved[order[-1]] - 1.0) if order else 0.0
    for after in reversed(order):
        moved[after] -= excess
        excess = 0.0
    for after, before in zip(reversed(order), reversed(order[:-1]), strict=False):
        moved[before] = min(moved[before], moved[after] - gap)
    return moved


def _mean_and_choice(axes: Axes, run: Run) -> None:
    points = score_points(run)
    if len(run.by_role("supervised")) > 1 and points:
        x, y = np.array(points).T
        axes.plot(x, y, color=INK, linewidth=1.0, alpha=0.55, zorder=1)
    result = run.result or {}
    best, score = number(result.get("best_round")), number(result.get("best_score"))
    if best is None or score is None:
        return
    axes.plot(best + 1, score, marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK, zorder=5)
    # The label stands where no curve is: at the foot of a high point, at the top above a low one.
    foot = 0.0 if score > 0.35 else 1.0
    near, far = (score - 0.035, 0.02) if score > 0.35 else (score + 0.035, 0.98)
    axes.plot([best + 1] * 2, [near, far], color=INK, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    right = best + 1 > run.total_rounds / 2
    text = {"textcoords": "offset points", "ha": "right" if right else "left", "fontsize": 9, "va": "center"}
    axes.annotate(f"selected, mean {score:.3f}", (best + 1, foot), (-7 if right else 7, 9 - 18 * foot), **text)
