"""Charts of gains: scores of each site by two models or three, and the differences with their intervals."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.reports import plots
from fedmed.reports.alone import hospitals
from fedmed.reports.gain import Gain, signed
from fedmed.reports.gain_words import change_heads, is_split, rows, score_heads
from fedmed.reports.palette import INK, MUTED, PAPER, site_colours
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import Run
from fedmed.reports.words import NOTHING, fixed

MARKS = "without (ring) and with (disc)"
APART = 0.34  # of two differences of one site, in rows
LEAST = 0.02  # of the axis of differences on either side of 0: rounding must not look like an effect


def gain_chart(run: Run) -> Figure:
    """Left, a line from the score without (ring) over that adapted (dot) to the score with (disc)."""
    title = run.score.label if is_split(run) else f"{run.score.label}: {MARKS}"
    marks = [f"{mark}: {head}" for mark, head in zip(("ring", "dot", "disc"), score_heads(run), strict=False)]
    return _chart(run, rows(run), title, ", ".join(marks) if is_split(run) else run.score.label, change_heads(run, ""))


def alone_chart(run: Run) -> Figure:
    """Left, a line from the score of the model trained alone (ring) to that of the federation's (disc)."""
    gains = [(row.gain,) for row in hospitals(run) if row.gain.difference is not None]
    return _chart(run, gains, f"{run.score.label}: alone (ring) and together (disc)", run.score.label, [""])


def _chart(run: Run, gains: Sequence[Sequence[Gain]], title: str, below: str, heads: Sequence[str]) -> Figure:
    """Right, the differences and their intervals, each step's on a line of its own."""
    colours, steps = site_colours([site.name for site in run.sites]), len(heads)
    figure = Figure(figsize=(WIDTH, 1.15 + (0.44 if steps == 1 else 0.66) * len(gains)))
    figure.set_layout_engine("constrained", wspace=0.05)
    scores, apart = figure.subplots(1, 2, sharey=True, width_ratios=(1.25, 1))
    scores.set_title(title)
    apart.set_title("Difference, and its 95 % interval over cases")
    apart.axvline(0, color=INK, linewidth=1)
    for place, row in enumerate(gains):
        _scores(scores, place, row, colours[row[0].name])
        for step, (gain, head) in enumerate(zip(row, heads, strict=True)):
            _difference(apart, place + (step - (steps - 1) / 2) * APART, gain, head, colours[gain.name])
    scores.set_yticks(range(len(gains)), [row[0].name for row in gains], color=INK)
    scores.set_ylim(len(gains) - 0.4, -0.6)
    every = [gain for row in gains for gain in row]
    scores.set_xlim(*_around([value for gain in every for value in (gain.ours, gain.theirs) if value is not None]))
    ends = [value for gain in every for value in (gain.low, gain.high, gain.difference) if value is not None]
    low, high = min([-LEAST, *ends]), max([LEAST, *ends])
    apart.set_xlim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    scores.set_xlabel(below)
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


def _scores(axes: Axes, place: int, row: Sequence[Gain], colour: str) -> None:
    values = [score for score in (row[0].theirs, *(gain.ours for gain in row)) if score is not None]
    axes.plot([min(values), max(values)], [place, place], color=colour, linewidth=2.4, alpha=0.55, zorder=2)
    if row[0].theirs is not None:
        axes.plot(row[0].theirs, place, "o", markersize=8, markerfacecolor=PAPER, markeredgecolor=colour, zorder=3)
    for gain in row[:-1]:
        if gain.ours is not None:
            axes.plot(gain.ours, place, "o", markersize=5, color=INK, markeredgewidth=0, zorder=5)
    if row[-1].ours is not None:
        axes.plot(row[-1].ours, place, "o", markersize=8.5, color=colour, markeredgewidth=0, zorder=4)


def _difference(axes: Axes, place: float, gain: Gain, head: str, colour: str) -> None:
    if gain.difference is None:
        axes.annotate(
            f"only {fixed(gain.ours if gain.theirs is None else gain.theirs)}",
            (1, place),
            (10, 0),
            **plots.RIGHT_OF_AXES,
        )
        return
    if gain.low is not None and gain.high is not None:
        axes.plot([gain.low, gain.high], [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
    axes.plot(gain.difference, place, "D", markersize=7, color=colour, markeredgewidth=0)
    what = f"{head}: {gain.verdict or NOTHING}" if head else gain.verdict
    text = f"{signed(gain.difference)}  {what}".rstrip()
    axes.annotate(text, (1, place), (10, 0), color=INK if gain.verdict else MUTED, **plots.RIGHT_OF_AXES)
