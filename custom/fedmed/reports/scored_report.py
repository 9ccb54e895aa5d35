"""Reports of runs whose models are scored, and of those that mark structures in volumes."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from fedmed.bundles.score import HD95
from fedmed.data.structure import Structure, titles
from fedmed.reports import plots
from fedmed.reports.notes import few_cases_notes, remarks
from fedmed.reports.palette import INK, PREDICTION, PREDICTION_INK, TRUTH, TRUTH_INK
from fedmed.reports.run_contents import UNSCORED, Run, Site
from fedmed.reports.run_files import column, number
from fedmed.reports.run_report import Chart, Images, LegendEntry, RunReport
from fedmed.reports.site_rows import SiteRow, screen_table, site_rows, sites_of
from fedmed.reports.slice_picture import draw, extent, outline, read_slice, svg
from fedmed.reports.training_scalars import reported
from fedmed.reports.words import NOTHING, count, fixed, join, mean_of, model_after
from fedmed.training.metrics import APART

ISLANDS = (
    f"Distant islands ({APART:g} mm or more from all that is true), a few of which make HD95 large where Dice is high"
)
VOLUMES = "Volume, predicted less true, mean of the test scans"
NAMED = 3  # cases with distant islands that are named, of a site


class ScoredReport(RunReport):
    """A run whose sites are asked for a score; what its pictures and its table hold is for a subclass to say.

    Attributes:
        has_role: whether the table for a terminal has room for the site's role.
    """

    has_role = True

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """A site's numbers in the table of sites, by the heads of their columns."""
        raise NotImplementedError

    def screen_cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """Those of them for which a terminal has room."""
        return self.cells(run, row)

    def values(self, run: Run) -> dict[str, Any]:
        return {"rows": site_rows(run), "model_after": model_after}

    def case_columns(self, run: Run, cases: pd.DataFrame) -> list[str]:
        return [run.score.name] if run.score.spread and run.score.name in cases else []

    def weighted(self, run: Run, cases: pd.DataFrame, weights: np.ndarray) -> np.ndarray:
        mean: np.ndarray = weights @ column(cases, run.score.name) / weights.sum(axis=1)
        return mean

    def charts(self, run: Run) -> dict[str, Chart]:
        """Final scores, once the sites were tested."""
        return {"test_scores": Chart(plots.final_scores)} if run.tested else {}

    def summary(self, run: Run) -> str:
        """Say what the model reaches at the sites of each role, or how far the run has come."""
        done, label = len(run.rounds), run.score.label
        if run.result is None:
            state = f"This run has finished {done} of {count(run.total_rounds, 'round')} and has no final test"
            best = max((r.score for r in run.rounds if r.score is not None), default=None)
            return f"{state}." if best is None else f"{state}; the best validation {label} so far is {best:.2f}."
        parts, best_round = _tested_groups(run), run.result.get("best_round")
        model = "the last model" if best_round is None else f"the model of round {int(best_round) + 1}"
        model = "the initial model" if best_round == -1 else model
        model = mean_of(rounds) if (rounds := run.result.get("mean_of")) else model
        start = f"After {count(done, 'round')} with {sites_of(run)}, {model}"
        if not parts:
            if any(row.n_cases for row in site_rows(run)):
                return f"{start} was chosen; its test gave no {label}."
            nobody = "no site shows its test score" if few_cases_notes(run) else "no site tested it"
            return f"{start} was chosen; {nobody}."
        return f"{start} reaches a mean test {label} of {join(parts)}."

    def note(self, run: Run) -> str:
        """Name the sites that chose it, and say what the others' labels were used for; never more than the files do."""
        selected_by = list((run.result or {}).get("selected_by") or [])
        others = [site for site in run.sites if site.role != "supervised"]
        learnt = [site.name for site in others if run.used_labels(site)]
        tested = {row.name for row in site_rows(run) if row.n_cases} - set(learnt)
        strangers = [name for name in selected_by if name not in {site.name for site in run.by_role("supervised")}]
        if run.result is None:
            return "No model was selected, because the run did not reach its end."
        if (rounds := run.result.get("mean_of")) or not selected_by or run.result.get("best_round") is None:
            model = mean_of(rounds) if rounds else "the last aggregate"
            return f"No model was selected by a score: the tested model is {model}."
        if strangers:
            return (
                f"The model was selected using {join(selected_by)}; {join(strangers)} did not train with labels, "
                f"so the {run.score.label} reported there is not independent of the selection."
            )
        note = f"The model was selected using labelled sites only: {join(selected_by)}."
        only = [site.name for site in others if site.name in tested]
        note += f" Labels of {join(only)} were used for evaluation only." if only else ""
        return note + (f" {join(learnt)} trained on labels too, of some images." if learnt else "")

    def figures(self, run: Run) -> list[tuple[str, str]]:
        """The round that was chosen, and its validation score."""
        result = run.result or {}
        best, score = (number(result.get(key)) for key in ("best_round", "best_score"))
        chosen = model_after(None if best is None else int(best))
        chosen = f"{join([str(round + 1) for round in rounds])}, mean" if (rounds := result.get("mean_of")) else chosen
        return [("selected", chosen), *([(f"validation {run.score.label}", fixed(score))] if run.validated else [])]

    def table(self, run: Run) -> Table:
        rows = []
        for row in site_rows(run):
            labels = "\n".join(filter(None, (row.labels, row.scored)))  # in one column, for 80 columns are full
            role = {"role": row.role} if self.has_role else {}
            first = {"site": row.name, **role, "labels": labels, "cases": str(row.n_cases or NOTHING)}
            rows.append(first | self.screen_cells(run, row))
        title = f"{run.job}: {run.score.label} on each site's test list"
        return screen_table(title, rows, _site_bests(run) + self.findings(run) + remarks(run))

    def training(self, run: Run) -> str:
        text, labelled = super().training(run), run.by_role("supervised")
        if run.validated:
            text += f", and the {run.score.label} of the model it received, on the validation list of the labelled"
            text += " sites (thin line: their mean)" if len(labelled) > 1 else " sites"
        text += "."
        if run.by_role("unsupervised") and labelled:
            text += " Dashed: sites that train without labels; their loss is another quantity than the labelled sites'."
        return " ".join([text, *(scalar.tells for scalar in reported(run) if scalar.tells)])


def _site_bests(run: Run) -> list[str]:
    """One sentence on the models that labelled sites scored best themselves, if they were tested."""
    rows = [row for row in site_rows(run) if row.site_best is not None]
    scores = join([f"{row.name} {fixed(row.site_best)} ({model_after(row.site_best_round)})" for row in rows])
    return [f"{run.score.label} of the model that each labelled site scored best itself: {scores}."] if rows else []


def _tested_groups(run: Run) -> list[str]:
    """Mean score of the tested sites of each role, in words."""
    rows = {row.name: row for row in site_rows(run)}
    means = {name: row.mean for name, row in rows.items() if row.mean is not None}
    parts = []
    for role, word in (("supervised", "labelled"), ("unsupervised", "unlabelled"), ("evaluate", "unseen")):
        if tested := [site for site in run.by_role(role) if site.name in means]:
            mean, cases = fmean(means[site.name] for site in tested), sum(rows[s.name].n_cases or 0 for s in tested)
            borrowed = {rows[site.name].scored for site in tested} - {""}
            group = f"{word} site {tested[0].name}" if len(tested) == 1 else f"{len(tested)} {word} sites"
            known = [f"({count(cases, 'case')})"] if cases else []
            parts.append(" ".join([f"{mean:.2f} at the {group}", *sorted(borrowed), *known]))
    return parts


class SegmentationReport(ScoredReport):
    """A run with a score of each case, such as Dice."""

    template, images = "segmentation.html.j2", "scans"
    case_note = (
        "Slices are axial, seen from below: R is the patient's right. White bar 50 mm; volumes are of the whole scan. "
        "Point at a picture to see it without outlines."
    )

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        tested = ((run.result or {}).get("test") or {}).values()
        distance = {"HD95": millimetres(row)} if any(HD95.test in test for test in tested) else {}
        return {run.score.label: fixed(row.mean), "± std": fixed(row.std), **distance}

    def findings(self, run: Run) -> list[str]:
        """Distant islands, scans without any mark, and by how much volumes are off, where single cases are here."""
        sites = [site for site in run.sites if "islands" in site.cases]
        islands = [text for site in sites if (text := islands_in(site, marked_by(run)))]
        biases = [f"{site.name} {bias}" for site in sites if (bias := volume_bias(site.cases, marked_by(run)))]
        missed = [text for site in sites if (text := nothing_marked(site))]
        sentences = [f"{ISLANDS}: {'; '.join(islands)}."] if islands else []
        return sentences + missed + ([f"{VOLUMES}: {join(biases)}."] if biases else [])

    def values(self, run: Run) -> dict[str, Any]:
        marked = marked_by(run)
        pictures = [(site, [(p, Markup(svg(p, marked))) for p in site.pictures(read_slice)]) for site in run.sites]
        also = {
            "pictures": pictures,
            "marked": marked,
            "colour": outline(marked),
            "grid": grid(run),
            "UNSCORED": UNSCORED,
        }
        return super().values(run) | also | {"millimetres": millimetres}

    def figures(self, run: Run) -> list[tuple[str, str]]:
        return [*([("marks", titles(run.classes))] if run.classes else []), *super().figures(run)]

    def table(self, run: Run) -> Table:
        table = super().table(run)
        remarks = [table.caption] if isinstance(table.caption, Text) else []
        table.caption = Text("\n").join([Text(grid(run)), *remarks])
        return table

    def figure(self, run: Run, site: Site) -> Figure | None:
        pictures = list(site.pictures(read_slice))
        if not pictures:
            return None
        tallest = max(height / width for width, height in map(extent, pictures))
        drawing = Figure(figsize=(3.4 * len(pictures), 3.3 * tallest + 0.8), layout="constrained")
        drawing.suptitle(site.name, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
        for axes, picture in zip(np.atleast_1d(drawing.subplots(1, len(pictures))), pictures, strict=True):
            draw(axes, picture, marked_by(run))
        look: dict[str, Any] = {"xycoords": "figure fraction", "textcoords": "offset points", "ha": "right"}
        colour = outline(marked_by(run))
        names = [("prediction", -8, PREDICTION_INK if colour == PREDICTION else colour)]
        names += [("truth", -78, TRUTH_INK)] if any(picture.kind != UNSCORED for picture in pictures) else []
        for name, left, colour in names:
            axes.annotate(name, (1, 1), (left, -6), color=colour, fontsize=9.5, va="top", **look).set_in_layout(False)
        return drawing

    def case_picture(self, run: Run, models: Mapping[str, Path], name: str, images: Images | None) -> Markup:
        """The slice of a case with the true outline and that of each model, side by side."""
        marked = marked_by(run)
        drawn = [(Markup(svg(read_slice(path, title), marked)), title) for title, path in models.items()]
        views = Markup("").join(Markup("<div>{}<span>{}</span></div>").format(*one) for one in drawn)
        return Markup('<div class="views" style="--marked: {}">{}</div>').format(outline(marked), views)

    def case_legend(self, run: Run) -> list[LegendEntry]:
        model = LegendEntry("outline of the model", outline(marked_by(run)), "dashes")
        return [LegendEntry("true outline", TRUTH, "line"), model]


def islands_in(site: Site, structure: Structure) -> str:
    """Count the distant islands in a site's test scans, and name the scans with most; empty without any."""
    total, named = most_islands(site, "scan")
    volume = structure.amount(float(np.nansum(column(site.cases, "islands_ml"))))
    return f"{site.name} {total}, {volume} together, in {named}" if total else ""


def most_islands(site: Site, noun: str) -> tuple[int, str]:
    """Number of distant islands in a site's test cases, and the cases with most of them: ``a (3) and b (1)``."""
    counts = np.nan_to_num(column(site.cases, "islands")).astype(int)
    order = [place for place in np.argsort(-counts, kind="stable").tolist() if counts[place]]
    named = [f"{site.cases['case'].iloc[place]} ({counts[place]})" for place in order[:NAMED]]
    named += [count(len(order) - NAMED, f"other {noun}")] if len(order) > NAMED else []
    return int(counts.sum()), join(named)


def nothing_marked(site: Site) -> str:
    """In how many of a site's test scans that have something to mark the model marked nothing; empty where in none."""
    there = column(site.cases, "truth_ml") > 0
    missed = int((there & (column(site.cases, "prediction_ml") == 0)).sum())
    scans = "1 scan that has" if there.sum() == 1 else f"{there.sum()} scans that have"
    return f"{site.name}: nothing is marked in {missed} of {scans} a true mask." if missed else ""


def volume_bias(cases: pd.DataFrame, structure: Structure) -> str:
    """Mean of the predicted less the true volume, ``+12.3 ml (+8.1 %)`` of the true one; empty without true volumes."""
    true, predicted = column(cases, "truth_ml"), column(cases, "prediction_ml")
    known = np.isfinite(true) & np.isfinite(predicted)
    if not true[known].sum():
        return ""
    bias, share = float((predicted - true)[known].mean()), float(predicted[known].sum() / true[known].sum() - 1)
    sign = "−" if bias < 0 else "+"
    return f"{sign}{structure.amount(abs(bias))} ({sign}{abs(100 * share):.1f} %)"


def marked_by(run: Run) -> Structure:
    """Return what the masks mark; of a run that does not say it, something without a name."""
    return run.classes[0] if run.classes else Structure(name="region")


def grid(run: Run) -> str:
    """On which voxels masks are compared, a sentence."""
    sizes = f", voxels of {' × '.join(f'{size:g}' for size in run.grid)} mm" if run.grid else ""
    return f"{run.score.label} is computed on the grid that the network sees{sizes}, not on that of the scan."


def millimetres(row: SiteRow) -> str:
    """The median 95 % Hausdorff distance of a site's cases."""
    value = row.test.get(HD95.test)
    return NOTHING if value is None else f"{value:.1f} mm"
