"""The picture of a gain: each site's score without and with what the sites without labels bring, and the difference."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.reports.gain import Gain, signed
from fedmed.reports.palette import INK, MUTED, PAPER, site_colours
from fedmed.reports.plots import BESIDE, WIDTH
from fedmed.reports.run_contents import Run
from fedmed.reports.words import fixed

LEAST = 0.02  # of the axis of differences on either side of 0: rounding must not look like an effect


def gain_chart(run: Run) -> Figure:
    """Left, a line from the score without (ring) to the score with (disc); right, the difference and its interval."""
    found, colours = run.gains, site_colours([site.name for site in run.sites])
    figure = Figure(figsize=(WIDTH, 1.15 + 0.44 * len(found)))
    figure.set_layout_engine("constrained", wspace=0.05)
    scores, apart = figure.subplots(1, 2, sharey=True, width_ratios=(1.25, 1))
    scores.set_title(f"{run.score.label}: without (ring) and with (disc)")
    apart.set_title("Difference, and its 95 % interval over cases")
    apart.axvline(0, color=INK, linewidth=1)
    for place, gain in enumerate(found):
        _scores(scores, place, gain, colours[gain.name])
        _difference(apart, place, gain, colours[gain.name])
    scores.set_yticks(range(len(found)), [gain.name for gain in found], color=INK)
    scores.set_ylim(len(found) - 0.4, -0.6)
    scores.set_xlim(*_around([value for gain in found for value in (gain.ours, gain.theirs) if value is not None]))
    ends = [value for gain in found for value in (gain.low, gain.high, gain.difference) if value is not None]
    low, high = min([-LEAST, *ends]), max([LEAST, *ends])
    apart.set_xlim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    scores.set_xlabel(run.score.label)
    apart.set_xlabel("left of the line: worse off; right of it: better off")
    for axes in (scores, apart):
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
    return figure


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis of scores: a tenth of room on either side, within 0..1, and not too narrow."""
    low, high = min(values), max(values)
    room = max(0.1 * (high - low), 0.03)
    return max(0.0, low - room), min(1.02, high + room)


def _scores(axes: Axes, place: int, gain: Gain, colour: str) -> None:
    if gain.ours is not None and gain.theirs is not None:
        axes.plot([gain.theirs, gain.ours], [place, place], color=colour, linewidth=2.4, alpha=0.55, zorder=2)
    if gain.theirs is not None:
        axes.plot(gain.theirs, place, "o", markersize=8, markerfacecolor=PAPER, markeredgecolor=colour, zorder=3)
    if gain.ours is not None:
        axes.plot(gain.ours, place, "o", markersize=8.5, color=colour, markeredgewidth=0, zorder=4)


def _difference(axes: Axes, place: int, gain: Gain, colour: str) -> None:
    if gain.difference is None:
        axes.annotate(f"only {fixed(gain.ours if gain.theirs is None else gain.theirs)}", (1, place), (10, 0), **BESIDE)
        return
    if gain.low is not None and gain.high is not None:
        axes.plot([gain.low, gain.high], [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
    axes.plot(gain.difference, place, "D", markersize=7, color=colour, markeredgewidth=0)
    text = f"{signed(gain.difference)}  {gain.verdict}".rstrip()
    axes.annotate(text, (1, place), (10, 0), color=INK if gain.verdict else MUTED, **BESIDE)
