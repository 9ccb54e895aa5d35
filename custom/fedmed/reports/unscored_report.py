"""Report of a run that nobody scores, such as training without any label."""

import shlex
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from fedmed.methods.declarations import LOSS, Scalar
from fedmed.reports.notes import remarks
from fedmed.reports.run_contents import Run
from fedmed.reports.run_report import RunReport, sections_of
from fedmed.reports.site_rows import screen_table, sites_of
from fedmed.reports.training_scalars import last_values, leading, mean, points, reported
from fedmed.reports.words import NOTHING, count, fixed

LAST = "FL_global_model.pt"  # the server's file of the last aggregate


class UnscoredReport(RunReport):
    """A run without validation and without a test."""

    template = "unscored.html.j2"

    def summary(self, run: Run) -> str:
        """Say how far the loss fell, and what else the training reached."""
        done = f"{len(run.rounds)} of {count(run.total_rounds, 'round')}" if run.result is None else ""
        start = f"This run has finished {done}" if done else f"After {count(len(run.rounds), 'round')}"
        start += f" with {sites_of(run)}"
        first, last = mean_loss(run, 0), mean_loss(run, -1)
        if first is None or last is None:
            return f"{start}."
        change = f"mean loss went from {first:.2f} to {last:.2f}"
        for scalar in leading(reported(run))[1:]:
            value = mean(last_values(points(run, scalar.name)).values()) or 0.0
            reached = f"{100 * value:.0f} %" if scalar.unit == "share" else f"{value:.2f} {scalar.unit}".strip()
            change += f" and the {scalar.label} reached {reached}"
        return f"{start}; the {change}." if done else f"{start}, the {change}."

    def note(self, run: Run) -> str:
        if run.result is None:
            return "The run did not reach its end; the model of its last good round is kept."
        return "No score chose a round: the model is the last aggregate, and no site has tested it."

    def figures(self, run: Run) -> list[tuple[str, str]]:
        """The last round's loss, and the last of what is to become higher."""
        others = leading(reported(run))[1:]
        reached = [(scalar.label, fixed(mean(last_values(points(run, scalar.name)).values()))) for scalar in others]
        return [("mean loss", fixed(mean_loss(run, -1))), *reached]

    def table(self, run: Run) -> Table:
        rows = learner_rows(run, leading(reported(run)))
        return screen_table(f"{run.job}: what each site learnt", rows, remarks(run))

    def training(self, run: Run) -> str:
        return " ".join([f"{super().training(run)}.", *(s.tells for s in reported(run) if s.tells)])

    def values(self, run: Run) -> dict[str, Any]:
        model = sorted((run.folder / "server").rglob(LAST))
        return {
            "rows": learner_rows(run, reported(run)),
            "sentences": [note for section in sections_of(run) for note in section.notes(run)],
            "model": str(model[0].relative_to(run.folder.parent)) if model else f"SERVER/app_server/{LAST}",
            "next_methods": run.method.next_methods(),
            "said": settings_of_next(run),
            "next_name": run.job.replace(" ", "_"),
        }


def settings_of_next(run: Run) -> str:
    """Options of fedmed study package that give a study which goes on from this run its bundle, sizes and classes."""
    labelled = ", ".join(f"{site.name}: supervised" for site in run.sites)
    said = {"bundle": run.bundle, "sites": f"{{{labelled}}}"}
    from_method = set(run.method.role("unsupervised").overlays)
    if kept := [name for name in run.overlays if name not in from_method]:
        said["overlays"] = f"[{', '.join(kept)}]"
    if run.classes:
        said["classes"] = f"[{', '.join(one.name for one in run.classes)}]"
    return " ".join(f"--set {shlex.quote(f'{key}={value}')}" for key, value in said.items())


def learner_rows(run: Run, scalars: Sequence[Scalar]) -> list[dict[str, str]]:
    """One row a site, head of a column -> text: images of a round, first and last loss, and the last of the others.

    ``scalars``: of the run's training, the loss first.
    """
    columns = {scalar.label: last_values(points(run, scalar.name)) for scalar in scalars[1:]}
    for section in sections_of(run):
        columns |= section.columns(run)
    losses, images = points(run, LOSS.name), last_values(points(run, "n_samples"))
    weights = {site: weight for line in run.rounds for site, weight in line.coefficients.items()}
    rows = []
    for site in (site.name for site in run.sites):
        loss = [value for _, value in losses[site]]
        rows.append(
            {
                "site": site,
                "images": str(int(images[site])) if images.get(site) else NOTHING,
                "loss, first → last round": f"{loss[0]:.3f} → {loss[-1]:.3f}" if loss else NOTHING,
                **{head: fixed(values.get(site)) for head, values in columns.items()},
                "weight": fixed(weights.get(site)),
            }
        )
    return rows


def mean_loss(run: Run, place: int) -> float | None:
    """Mean over the sites of their loss in a round, by its place among the finished ones."""
    return mean([values.get(LOSS.name) for values in run.rounds[place].sites.values()]) if run.rounds else None
