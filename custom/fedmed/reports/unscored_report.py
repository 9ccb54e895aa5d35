"""What a report shows of a run that nobody scores, such as training without any label."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from fedmed.reports.curves import contrastive_points, loss_points
from fedmed.reports.notes import remarks
from fedmed.reports.representation_charts import changes
from fedmed.reports.run import Run, Site
from fedmed.reports.site_rows import Column, facts, screen_table
from fedmed.reports.words import NOTHING, count, fixed, join, size

LAST = "FL_global_model.pt"  # the server's file of the last aggregate
Points = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class LearnerRow:
    """What one site learnt from: None where a number is not known.

    Attributes:
        images: that a round saw.
        first, last: its mean loss in its first and its last round.
        accuracy: contrastive accuracy of its last round, 0..1.
        kept: r of its last round.
        weight: in its last aggregate.
        clamped: share of the values of synthetic negatives that left the range and were cut, last round, 0..1.
    """

    name: str
    images: int | None
    first: float | None
    last: float | None
    accuracy: float | None
    kept: float | None
    weight: float | None
    clamped: float | None

    @property
    def loss(self) -> str:
        """``5.21 → 3.10``."""
        return NOTHING if self.first is None else f"{self.first:.3f} → {self.last:.3f}"


class UnscoredReport:
    """A run without validation and without a test.

    Attributes:
        goes_on: whether the page says how a task is learnt from the model.
    """

    template = "unscored.html.j2"
    goes_on = False

    def summary(self, run: Run) -> str:
        """How far the loss fell."""
        done = f"{len(run.rounds)} of {count(run.total_rounds, 'round')}" if run.result is None else ""
        start = f"This run has finished {done}" if done else f"After {count(len(run.rounds), 'round')}"
        start += f" with {count(len(run.sites), 'site')}"
        first, last = mean_loss(run, 0), mean_loss(run, -1)
        if first is None or last is None:
            return f"{start}."
        change = f"mean loss went from {first:.2f} to {last:.2f}"
        accuracy = mean([row.accuracy for row in learner_rows(run)])
        change += "" if accuracy is None else f" and the contrastive accuracy reached {100 * accuracy:.0f} %"
        return f"{start}; the {change}." if done else f"{start}, the {change}."

    def note(self, run: Run) -> str:
        """Which model is kept."""
        if run.result is None:
            return "The run did not reach its end; the model of its last good round is kept."
        return "No score chose a round: the model is the last aggregate, and no site has tested it."

    def facts(self, run: Run) -> list[tuple[str, str]]:
        """The short figures at the top of the page."""
        accuracy = mean([row.accuracy for row in learner_rows(run)])
        told = [("mean loss", fixed(mean_loss(run, -1)))]
        return facts(run, told + ([] if accuracy is None else [("contrastive accuracy", fixed(accuracy))]))

    def table(self, run: Run) -> Table:
        """What each site learnt from, for a terminal."""
        columns = [
            Column("site", lambda row: row.name),
            Column("images", lambda row: str(row.images or NOTHING), right=True),
            Column("loss", lambda row: row.loss, right=True),
            Column("contrastive accuracy", lambda row: fixed(row.accuracy), right=True),
        ]
        columns += [Column("r", lambda row: fixed(row.kept), right=True)] if changes(run) else []
        columns += [Column("weight", lambda row: fixed(row.weight), right=True)]
        return screen_table(f"{run.job}: what each site learnt", columns, learner_rows(run), remarks(run))

    def training(self, run: Run) -> str:
        """What the chart of the training shows."""
        text = "Each site's mean loss in a round"
        if any(contrastive_points(run).values()):
            text += ", and the share of views whose partner was told from all negatives"
        return f"{text}. Both depend on the number of negatives; compare them within a run only."

    def values(self, run: Run) -> dict[str, Any]:
        """What the template needs."""
        rows = learner_rows(run)
        return {
            "rows": rows,
            "note": self.note(run),
            "kept": bool(changes(run)),
            "clamped": any(row.clamped is not None for row in rows),
            "exchange": exchange_note(run),
            "file": LAST,
            "model": model_path(run),
            "goes_on": self.goes_on,
        }

    def charts(self, run: Run) -> dict[str, Callable[[Run], Figure]]:
        """None beside those of every run."""
        return {}

    def figure(self, site: Site) -> Figure | None:
        """None: nothing is predicted yet."""
        return None


class EncoderReport(UnscoredReport):
    """A run that leaves an encoder."""

    goes_on = True


def learner_rows(run: Run) -> list[LearnerRow]:
    """One row a site that trains."""
    losses, accuracies, kept = loss_points(run), contrastive_points(run), changes(run)
    rows = []
    for site in run.sites:
        told = [line.sites[site.name] for line in run.rounds if site.name in line.sites]
        last = told[-1] if told else {}
        weights = [line.coefficients[site.name] for line in run.rounds if site.name in line.coefficients]
        loss = [value for _, value in losses[site.name]]
        rows.append(
            LearnerRow(
                name=site.name,
                images=int(last["n_samples"]) if last.get("n_samples") else None,
                first=loss[0] if loss else None,
                last=loss[-1] if loss else None,
                accuracy=_last(accuracies, site.name),
                kept=_last(kept, site.name),
                weight=weights[-1] if weights else None,
                clamped=last.get("train_clamped_fraction"),
            )
        )
    return rows


def _last(points: Points, name: str) -> float | None:
    return points[name][-1][1] if points.get(name) else None


def mean(values: list[float | None]) -> float | None:
    """Mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def mean_loss(run: Run, place: int) -> float | None:
    """Mean over the sites of their loss in a round, by its place among the finished ones."""
    return mean([told.get("train_loss") for told in run.rounds[place].sites.values()]) if run.rounds else None


def exchange_note(run: Run) -> str:
    """What the sites told each other besides their models; empty where the job asks for nothing."""
    asked = run.plan.get("exchange") or {}
    if not asked:
        return ""
    first = int(asked.get("from_round") or 0)
    begun = [line for line in run.rounds if line.index >= first]
    names = join([str(name) for name in asked.get("names") or ()])
    note = f"From round {first + 1} on, sites are asked for a summary of their features ({names})"
    if not begun:
        return f"{note}; the run has not come so far."
    sent = mean([line.extras_bytes for line in begun])
    if not sent:
        return f"{note}; none came."
    note += ", from which the others draw synthetic negatives"
    note += f": {size(sent)} a round, both ways together."
    told = {name for line in begun for name, extras in line.extras.items() if extras.get("n") is not None}
    silent = [site.name for site in run.sites if site.name not in told]
    return f"{note} No summary came from {join(silent)}." if told and silent else note


def model_path(run: Run) -> str:
    """Where the server keeps the model, from the folder that holds the run's; empty if the model is not here."""
    found = sorted((run.folder / "server").rglob(LAST))
    return str(found[0].relative_to(run.folder.parent)) if found else ""
