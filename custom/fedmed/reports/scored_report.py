"""What reports say of every run whose sites are compared by a score, whatever the score is."""

from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from fedmed.reports import plots
from fedmed.reports.notes import remarks
from fedmed.reports.run_contents import Run
from fedmed.reports.run_files import column, number
from fedmed.reports.run_report import Chart, RunReport
from fedmed.reports.site_rows import SiteRow, screen_table, site_rows, sites_of
from fedmed.reports.training_scalars import reported
from fedmed.reports.words import NOTHING, count, fixed, join, mean_of, model_after


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
        """What the kind's template needs."""
        return {"rows": site_rows(run), "model_after": model_after}

    def case_columns(self, run: Run, cases: pd.DataFrame) -> list[str]:
        """The score, where every case has one."""
        return [run.score.name] if run.score.spread and run.score.name in cases else []

    def weighted(self, run: Run, cases: pd.DataFrame, weights: np.ndarray) -> np.ndarray:
        """The mean of the cases' scores."""
        mean: np.ndarray = weights @ column(cases, run.score.name) / weights.sum(axis=1)
        return mean

    def charts(self, run: Run) -> dict[str, Chart]:
        """Final scores, once the sites were tested."""
        return {"test_scores": Chart(plots.final_scores)} if run.tested else {}

    def summary(self, run: Run) -> str:
        """What the model reaches at the sites of each role, or how far the run has come."""
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
            tested = any(row.n_cases for row in site_rows(run))
            return f"{start} was chosen; {f'its test gave no {label}' if tested else 'no site tested it'}."
        return f"{start} reaches a mean test {label} of {join(parts)}."

    def note(self, run: Run) -> str:
        """Which sites chose it, and what the other sites' labels were used for. Never claims more than the files."""
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
        """The final scores of each site."""
        rows = []
        for row in site_rows(run):
            labels = "\n".join(filter(None, (row.labels, row.scored)))  # in one column, for 80 columns are full
            role = {"role": row.role} if self.has_role else {}
            first = {"site": row.name, **role, "labels": labels, "cases": str(row.n_cases or NOTHING)}
            rows.append(first | self.screen_cells(run, row))
        title = f"{run.job}: {run.score.label} on each site's test list"
        return screen_table(title, rows, _own_best(run) + self.findings(run) + remarks(run))

    def training(self, run: Run) -> str:
        """What the chart of the training shows."""
        text, labelled = super().training(run), run.by_role("supervised")
        if run.validated:
            text += f", and the {run.score.label} of the model it received, on the validation list of the labelled"
            text += " sites (thin line: their mean)" if len(labelled) > 1 else " sites"
        text += "."
        if run.by_role("unsupervised") and labelled:
            text += " Dashed: sites that train without labels; their loss is another quantity than the labelled sites'."
        return " ".join([text, *(scalar.tells for scalar in reported(run) if scalar.tells)])


def _own_best(run: Run) -> list[str]:
    """One sentence on the models that labelled sites scored best themselves, if they were tested."""
    rows = [row for row in site_rows(run) if row.own is not None]
    scores = join([f"{row.name} {fixed(row.own)} ({model_after(row.own_round)})" for row in rows])
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
