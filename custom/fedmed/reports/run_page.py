"""The report of a run: one HTML page that needs nothing else, and PNGs beside it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from fedmed.errors import FedMedError
from fedmed.reports import alone, curves, gain_words, notes, palette, plots
from fedmed.reports.control_run import read_with_controls
from fedmed.reports.gain import signed
from fedmed.reports.gain_chart import alone_chart, gain_chart
from fedmed.reports.gain_words import rows
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
            figures = drawn(run, charts(run))
            pngs = write_pngs(run, out, figures)
            html = page(run, figures)
        path = out / "report.html"
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise FedMedError(f"cannot write the report to {out}: {error}; choose another folder with --out") from error
    return Report(path, pngs)


def drawn(run: Run, named: Mapping[str, Chart]) -> dict[str, Figure]:
    """Draw charts, by name."""
    return {name: chart.draw(run) for name, chart in named.items()}


def write_pngs(run: Run, out: Path, figures: Mapping[str, Figure]) -> list[Path]:
    """Write every chart and every site's pictures as PNG; pictures of an earlier report of the folder are removed."""
    for old in (path for pattern in OF_SITES for path in out.glob(pattern)):
        old.unlink()
    report = report_of(run)
    of_sites = {f"slices_{site.name}": drawing for site in run.sites if (drawing := report.figure(run, site))}
    for name, drawing in {**figures, **of_sites}.items():
        plots.png(drawing, out / f"{name}.png")
    return [out / f"{name}.png" for name in (*figures, *of_sites)]


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
    named |= {"gain": Chart(gain_chart)} if compared else {}
    compared_rows = [row for row in alone.hospitals(run) if row.gain.difference is not None]
    return named | ({"alone": Chart(alone_chart)} if compared_rows else {})


def page(run: Run, figures: Mapping[str, Figure] | None = None) -> str:
    """Return the report's page; ``figures``: its charts, where they have been drawn."""
    report, named = report_of(run), charts(run)
    figures = drawn(run, named) if figures is None else figures
    return fill_template(
        "report.html.j2",
        run=run,
        when=started(run.started),
        report=report,
        index={site.name: place % len(palette.LIGHT) for place, site in enumerate(run.sites)},
        notes=notes,
        unchanged=[line.index + 1 for line in run.rounds if not line.aggregated],
        method_charts=[name for section in sections_of(run) for name in section.charts(run) if name not in EVERY_RUN],
        captions={name: chart.caption for name, chart in named.items()},
        charts={name: Markup(plots.svg(one, name)) for name, one in figures.items() if name != SLIDES_ONLY},
        settings=settings(run),
        summaries=summaries(run),
        gain=gain_words,
        alone=alone,
        hospitals=alone.hospitals(run),
        signed=signed,
        fixed=fixed,
        NOTHING=NOTHING,
        **report.values(run),
    )


def summaries(run: Run) -> list[str]:
    """The most important, a paragraph each: what hospitals with labels gain, and those without; else the scores."""
    gains = [alone.headline(run), gain_words.headline(run) if run.steps else ""]
    return list(filter(None, gains)) or [report_of(run).summary(run)]


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
