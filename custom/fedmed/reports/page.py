"""The report of a run: one HTML page that needs nothing else, and PNGs beside it."""

from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fedmed.errors import FedMedError
from fedmed.reports import curves, overlays, palette, plots, tables
from fedmed.reports.clipping import clip_note, clip_rows
from fedmed.reports.run import Run, Site, read_run
from fedmed.reports.words import NOTHING, fixed, flat

TEMPLATE = "report.html.j2"
CHARTS = {
    "test_dice": plots.test_dice,
    "curves": curves.curves,
    "participation": plots.participation,
    "traffic": plots.traffic,
}


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
    figures = {name: draw(run) for name, draw in CHARTS.items()}
    figures |= {f"slices_{site.name}": drawing for site in run.sites if (drawing := overlays.figure(site))}
    for name, drawing in figures.items():
        plots.png(drawing, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


def page(run: Run) -> str:
    """Return the HTML of a run's report."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files("fedmed.reports").joinpath("templates", TEMPLATE).read_text(encoding="utf-8")
    colours = [site.name for site in run.sites]
    return environment.from_string(source).render(
        run=run,
        light=palette.css(dark=False),
        dark=palette.css(dark=True),
        truth=palette.TRUTH,
        prediction=palette.PREDICTION,
        when=started(run.started),
        summary=tables.summary(run),
        facts=tables.facts(run),
        rows=tables.site_rows(run),
        index={name: place % len(palette.LIGHT) for place, name in enumerate(colours)},
        selection=tables.selection_note(run),
        refusals=tables.refusals(run),
        warnings=tables.warnings(run),
        releases=tables.release_notes(run),
        privacy=tables.privacy_notes(run),
        clipped=clip_note(run),
        norms=clip_rows(run),
        resumed=tables.resumed_note(run),
        unchanged=[line.index + 1 for line in run.rounds if not line.aggregated],
        errors=[(site.name, message) for site in run.sites for message in site.errors],
        pictures=[(site, slices(site)) for site in run.sites],
        charts={name: Markup(plots.svg(draw(run), name)) for name, draw in CHARTS.items() if name != "test_dice"},
        settings=settings(run),
        fixed=fixed,
        NOTHING=NOTHING,
    )


def slices(site: Site) -> list[dict[str, Any]]:
    """The pictures of one site, ready for the page."""
    return [{"kind": p.kind, "case": p.case, "dice": p.dice, "svg": Markup(overlays.svg(p))} for p in site.pictures()]


def settings(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything needed to repeat the run, in groups of (name, value)."""
    run_facts = {
        "job": run.job,
        "bundle": run.bundle,
        "overlays": run.overlays,
        "seed": run.seed,
        "rounds": run.total_rounds,
        "started": started(run.started),
        "time": dict(tables.facts(run))["time"],
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
