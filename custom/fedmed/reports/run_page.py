"""The report of a run: one HTML page that needs nothing else, and PNGs beside it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from fedmed.errors import FedMedError
from fedmed.reports import curves, notes, palette, plots, representation_charts
from fedmed.reports.clipped_updates import clip_note, clip_rows
from fedmed.reports.run import Run, read_run
from fedmed.reports.run_report import report_of
from fedmed.reports.words import NOTHING, fixed, flat

TEMPLATE = "report.html.j2"
BESIDE = "test_scores"  # a chart for slides; the page has a table of the same


@dataclass(frozen=True)
class Report:
    """Where a report was written."""

    html: Path
    pngs: list[Path]


def write_report(folder: str | Path, out: str | Path | None = None) -> Report:
    """Write ``report.html`` and PNGs of a run.

    Args:
        folder: the run's folder.
        out: where to write; ``<folder>/report`` by default.

    Raises:
        FedMedError: no run there (JobError), a damaged file, or no place to write.
    """
    run = read_run(folder)
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
    for old in out.glob("slices_*.png"):
        old.unlink()
    figures, report = {name: draw(run) for name, draw in charts(run).items()}, report_of(run)
    figures |= {f"slices_{site.name}": drawing for site in run.sites if (drawing := report.figure(site))}
    for name, drawing in figures.items():
        plots.png(drawing, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


def charts(run: Run) -> dict[str, Callable[[Run], Figure]]:
    """Name -> how to draw it: every run's charts, and those of its kind."""
    drawn = representation_charts.weights if representation_charts.changes(run) else plots.participation
    return {"curves": curves.curves, "aggregation": drawn, "traffic": plots.traffic, **report_of(run).charts(run)}


def page(run: Run) -> str:
    """Return the HTML of a run's report."""
    style = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("fedmed.reports"), **style)
    colours, report = [site.name for site in run.sites], report_of(run)
    return environment.get_template(TEMPLATE).render(
        run=run,
        light=palette.css(dark=False),
        dark=palette.css(dark=True),
        truth=palette.TRUTH,
        prediction=palette.PREDICTION,
        when=started(run.started),
        report=report,
        index={name: place % len(palette.LIGHT) for place, name in enumerate(colours)},
        refusals=notes.refusals(run),
        warnings=notes.warnings(run),
        releases=notes.release_notes(run),
        privacy=notes.privacy_notes(run),
        clipped=clip_note(run),
        norms=clip_rows(run),
        resumed=notes.resumed_note(run),
        unchanged=[line.index + 1 for line in run.rounds if not line.aggregated],
        errors=notes.errors(run),
        charts={name: Markup(plots.svg(draw(run), name)) for name, draw in charts(run).items() if name != BESIDE},
        changes=representation_charts.changes(run),
        self_adaptive=(run.config.get("aggregator") or {}).get("weighting") == "self_adaptive",
        settings=settings(run),
        fixed=fixed,
        NOTHING=NOTHING,
        **report.values(run),
    )


def settings(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything needed to repeat the run, in groups of (name, value)."""
    run_facts = {
        "job": run.job,
        "bundle": run.bundle,
        "overlays": run.overlays,
        "seed": run.seed,
        "rounds": run.total_rounds,
        "started": started(run.started),
        "time": dict(report_of(run).facts(run))["time"],
    }
    weights = {site.name: f"{site.role}, weight {site.weight:g}" for site in run.sites}
    groups = {"Run": run_facts, "Sites": weights, "Settings": run.config, "Versions": run.versions}
    groups["Server hardware"] = run.hardware
    return [(name, flat(values)) for name, values in groups.items() if values]


def started(text: str) -> str:
    """ISO time as ``21 November 2026, 09:05 UTC``; anything else stays as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.day} {time:%B %Y, %H:%M} {time.tzname() or ''}".strip()
