"""The report of a run: one HTML page that needs nothing else, and PNGs beside it."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.errors import FedMedError
from fedmed.reports import curves, gain_words, notes, palette, plots
from fedmed.reports.control_run import read_with_controls
from fedmed.reports.gain import Gain, signed
from fedmed.reports.gain_words import change_heads, is_split, rows, score_heads
from fedmed.reports.palette import INK, MUTED, PAPER, site_colours
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_contents import Run
from fedmed.reports.run_report import Chart, report_of, sections_of
from fedmed.reports.sheet import fill_template
from fedmed.reports.words import NOTHING, fixed, flat

EVERY_RUN = ("curves", "aggregation", "traffic")
UPDATES = "updates"  # of a run in which two sites or more trained in a round
OF_SITES = ("slices_*.png", "features_*.png", "time_*.png")  # pictures of single sites
SLIDES_ONLY = "test_scores"  # a chart for slides; the page has a table of the same
DISCS = (
    "The area of a disc is the weight of a site's update in that round; a cross is an update that was refused or did "
    "not come."
)
GEOMETRY = (
    "How each site's update lies to the weighted mean of all, before any optimizer at the server: a cosine of 1 is the "
    "same direction, 0 has nothing in common; a large distance is a site that trains towards something else (Markert "
    "2022, Eq. 4.19 and 4.20)."
)
MARKS = "without (ring) and with (disc)"
APART = 0.34  # of two differences of one site, in rows
LEAST = 0.02  # of the axis of differences on either side of 0: rounding must not look like an effect


class Report(NamedTuple):
    """Paths of a written report."""

    html: Path
    pngs: list[Path]


def write_report(folder: str | Path, out: str | Path | None = None, controls: Sequence[str | Path] = ()) -> Report:
    """Write ``report.html`` and PNGs of a run.

    Args:
        folder: the run's folder.
        out: where to write; ``<folder>/report`` by default.
        controls: folders of its controls, where they are not in the run's.

    Raises:
        FedMedError: no run there (JobError), a damaged file, or no place to write.
    """
    run = read_with_controls(folder, controls)
    out = (Path(out).expanduser() if out else run.folder / "report").absolute()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with plots.style():
            pngs = write_pngs(run, out)
            html = page(run)
        path = out / "report.html"
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise FedMedError(f"cannot write the report to {out}: {error}; choose another folder with --out") from error
    return Report(path, pngs)


def write_pngs(run: Run, out: Path) -> list[Path]:
    """Write every chart and every site's pictures as PNG; pictures of an earlier report of the folder are removed."""
    for old in (path for pattern in OF_SITES for path in out.glob(pattern)):
        old.unlink()
    figures, report = {name: chart.draw(run) for name, chart in charts(run).items()}, report_of(run)
    figures |= {f"slices_{site.name}": drawing for site in run.sites if (drawing := report.figure(run, site))}
    for name, drawing in figures.items():
        plots.png(drawing, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


def charts(run: Run) -> dict[str, Chart]:
    """Name -> chart: every run's, those of its kind, and those of its method."""
    report = report_of(run)
    standard = (Chart(curves.curves, report.training(run)), Chart(plots.participation, DISCS), Chart(plots.traffic))
    named = dict(zip(EVERY_RUN, standard, strict=True)) | report.charts(run)
    if any(line.geometry for line in run.rounds):
        named[UPDATES] = Chart(curves.updates, GEOMETRY)
    for section in sections_of(run):
        named |= section.charts(run)
    compared = run.steps and any(gain.ours is not None for row in rows(run) for gain in row)
    return named | ({"gain": Chart(gain_chart)} if compared else {})


def page(run: Run) -> str:
    report, drawn = report_of(run), charts(run)
    return fill_template(
        "report.html.j2",
        run=run,
        when=started(run.started),
        report=report,
        index={site.name: place % len(palette.LIGHT) for place, site in enumerate(run.sites)},
        notes=notes,
        unchanged=[line.index + 1 for line in run.rounds if not line.aggregated],
        method_charts=[name for section in sections_of(run) for name in section.charts(run) if name not in EVERY_RUN],
        captions={name: chart.caption for name, chart in drawn.items()},
        charts={name: Markup(plots.svg(chart.draw(run), name)) for name, chart in drawn.items() if name != SLIDES_ONLY},
        settings=settings(run),
        summary=gain_words.headline(run) if run.steps else report.summary(run),
        gain=gain_words,
        signed=signed,
        fixed=fixed,
        NOTHING=NOTHING,
        **report.values(run),
    )


def settings(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything needed to repeat the run, in groups of (name, value)."""
    run_facts: dict[str, Any] = {
        "job": run.job,
        "bundle": run.bundle,
        "overlays": run.overlays,
        "seed": run.seed,
        "rounds": run.total_rounds,
        "started": started(run.started),
        "time": dict(report_of(run).facts(run))["time"],
    }
    weights = {site.name: f"{site.role}, weight {site.weight:g}" for site in run.sites}
    groups: dict[str, dict[str, Any]] = {"Run": run_facts, "Sites": weights, "Settings": run.config}
    groups |= {"Versions": run.versions, "Server hardware": run.hardware}
    return [(name, flat(values)) for name, values in groups.items() if values]


def started(text: str) -> str:
    """ISO time as ``21 November 2026, 09:05 UTC``; anything else stays as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.day} {time:%B %Y, %H:%M} {time.tzname() or ''}".strip()


def gain_chart(run: Run) -> Figure:
    """Left, a line from the score without (ring) over that adapted (dot) to the score with (disc); right, the
    differences and their intervals, each step's on a line of its own."""
    gains, colours, steps = rows(run), site_colours([site.name for site in run.sites]), len(run.steps)
    figure = Figure(figsize=(WIDTH, 1.15 + (0.44 if steps == 1 else 0.66) * len(gains)))
    figure.set_layout_engine("constrained", wspace=0.05)
    scores, apart = figure.subplots(1, 2, sharey=True, width_ratios=(1.25, 1))
    scores.set_title(run.score.label if is_split(run) else f"{run.score.label}: {MARKS}")
    apart.set_title("Difference, and its 95 % interval over cases")
    apart.axvline(0, color=INK, linewidth=1)
    for place, row in enumerate(gains):
        _scores(scores, place, row, colours[row[0].name])
        for step, (gain, head) in enumerate(zip(row, change_heads(run, ""), strict=True)):
            _difference(apart, place + (step - (steps - 1) / 2) * APART, gain, head, colours[gain.name])
    scores.set_yticks(range(len(gains)), [row[0].name for row in gains], color=INK)
    scores.set_ylim(len(gains) - 0.4, -0.6)
    every = [gain for row in gains for gain in row]
    scores.set_xlim(*_around([value for gain in every for value in (gain.ours, gain.theirs) if value is not None]))
    ends = [value for gain in every for value in (gain.low, gain.high, gain.difference) if value is not None]
    low, high = min([-LEAST, *ends]), max([LEAST, *ends])
    apart.set_xlim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    marks = [f"{mark}: {head}" for mark, head in zip(("ring", "dot", "disc"), score_heads(run), strict=False)]
    scores.set_xlabel(", ".join(marks) if is_split(run) else run.score.label)
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
