"""A layout for scores of several labels: a row an arm, a column a site or a label."""

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from fedmed.errors import JobError
from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING
from fedmed.training.label_counts import LabelCounts
from research.runner.always_positive import always_positive
from research.runner.label_figures import mean_known, score_matrix
from research.runner.label_scores import ALTRUISTIC, LabelScores
from research.runner.score_kinds import Floats
from research.runner.score_table import selected
from research.runner.table_layout import ShownArm, ShownTable, TableLayout
from research.runner.words_of_tables import csv_bytes, markdown_table, several, signed

WORDS = {"sites": "mean over the labels, of each site's own frames", "labels": "of the frames of all sites together"}
OVERALL = "all"


class LabelTable(TableLayout):
    """F1 of every row, and its difference to the altruistic view of models trained alone, a section a variant.

    By ``sites`` (Markert 2022, Table A.1) columns are unweighted means over labels; by ``labels`` (A.2) they are of all
    frames together, from counts that are added up, and of the views and ``personal`` rows, whose sites have models of
    their own, the mean over sites weighted by their training images. Variances are of the population. Rows with a
    group stand below and are in no mean.

    Attributes:
        columns: ``sites`` or ``labels``.
        federated: rows of the last two means.
        personal: rows whose sites have models of their own.
        absent: F1 of a label that is neither there nor called: ``zero``, or ``skip`` to leave it out.
    """

    columns: Literal["sites", "labels"]
    federated: list[str]
    personal: list[str] = []
    absent: Literal["zero", "skip"] = "zero"

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        check_rows("federated", self.federated, arms)
        check_rows("personal", self.personal, arms)

    def names(self) -> set[str]:
        return {"table.md", "table.csv", "labels.csv", "matrix.png"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        scores = shown.evidence.labels
        lines, frames = [f"# {shown.title}", "", self._words(scores), ""], []
        for variant in scores.variants:
            table = self.table(scores, variant, below(shown.arms))
            frames.append(table.rename_axis("row").reset_index().assign(variant=variant))
            lines += [f"## {variant}", ""] if variant else []
            lines += [*_markdown(table), "", *_missing(scores, variant, self.personal)]
        lines += [said, ""] if (said := always_positive(scores, self.columns)) else []
        contents = {"table.md": "\n".join(lines).encode(), "table.csv": csv_bytes(pd.concat(frames))} if frames else {}
        if frames and self.columns == "sites":
            contents["labels.csv"] = csv_bytes(label_numbers(scores, shown.evidence.frame))
            with style():
                contents["matrix.png"] = png(score_matrix(shown.title, scores, self.personal, self.absent))
        return contents

    def table(self, scores: LabelScores, variant: str, further: Collection[str]) -> pd.DataFrame:
        """Mean F1 over seeds; rows, their means and variances, and those of ``beside``; columns, Mean and Var."""
        heads = scores.sites if self.columns == "sites" else scores.labels
        values = {row: self._row(scores, row, variant) for row in scores.rows(variant)}
        main = [row for row in values if row not in further]
        table = pd.DataFrame.from_dict({row: values[row] for row in main}, orient="index", columns=heads)
        federated = table.loc[[row for row in self.federated if row in main]]
        more = {"Mean": table.mean(), "Var": table.var(ddof=0)}
        more |= {"MeanFL": federated.mean(), "VarFL": federated.var(ddof=0)} if len(federated) else {}
        more |= {row: pd.Series(values[row], heads) for row in values if row in further}
        table = pd.concat([table, pd.DataFrame(more).T])
        return table.assign(Mean=table.mean(axis=1), Var=table[heads].var(axis=1, ddof=0))

    def _row(self, scores: LabelScores, row: str, variant: str) -> Floats:
        if self.columns == "sites":
            return np.asarray(mean_known(scores.values(row, variant, self.absent), (2,)).mean(0))
        return np.asarray(scores.overall(row, variant, row in self.personal, self.absent).mean(0))

    def _words(self, scores: LabelScores) -> str:
        seeds, absent = several([len(scores.seeds)], "seed"), {"zero": "counts 0", "skip": "is left out"}[self.absent]
        alone = any(ALTRUISTIC in scores.rows(variant) for variant in scores.variants)
        shown = f" (difference to {ALTRUISTIC})" if alone else ""
        return (
            f"F1, {WORDS[self.columns]}; mean over {seeds}{shown}. A label that is neither there nor called {absent}. "
            "Var: variance of the population."
        )


def check_rows(key: str, rows: Collection[str], arms: Sequence[ShownArm]) -> None:
    """Refuse (JobError) rows that no arm makes."""
    known = dict.fromkeys(arm.row for arm in arms)
    if unknown := [row for row in rows if row not in known]:
        raise JobError(f"'{key}' names '{unknown[0]}'; it must name some of: {', '.join(known)}")


def below(arms: Sequence[ShownArm]) -> list[str]:
    """Rows that stand below the others."""
    return list(dict.fromkeys(arm.row for arm in arms if arm.group))


def label_numbers(scores: LabelScores, frame: pd.DataFrame) -> pd.DataFrame:
    """Precision, recall, F1 and average precision of each model, site and label, and of all sites, means over seeds.

    Average precision is a mean over the videos that show the label; of all sites, over all of their videos.
    """
    videos = selected(frame, list="test", model="last").astype({"arm": str, "metric": str})
    precisions = videos[videos["metric"].isin([f"ap_{label}" for label in scores.labels])]
    of_arm = {arm: part for arm, part in precisions.groupby("arm")}
    rows = []
    for variant in scores.variants:
        for arm in dict.fromkeys(arm for row in scores.rows(variant) for arm in scores.models(row, variant)):
            for site in [*scores.sites, OVERALL]:
                rows += _of_labels(scores, arm, site, of_arm.get(arm, precisions[:0]))
    return pd.DataFrame(rows)


def _of_labels(scores: LabelScores, arm: str, site: str, videos: pd.DataFrame) -> list[dict[str, object]]:
    counts = [scores.total(arm, s) if site == OVERALL else scores.counts(arm, s, site) for s in scores.seeds]
    known = [one for one in counts if one is not None]
    part = videos if site == OVERALL else videos[videos["site"] == scores.place(site)]
    ap = part.groupby("metric")["value"].mean()
    measures = {"precision": LabelCounts.precision, "recall": LabelCounts.recall, "f1": LabelCounts.f1}
    means = {
        f"{name}_{absent}": np.mean([measure(one, absent) for one in known], axis=0)
        for name, measure in measures.items()
        for absent in ("zero", "skip")
        if known
    }
    return [
        {"arm": arm, "site": site, "label": label}
        | {name: float(values[place]) for name, values in means.items()}
        | {"average_precision": ap.get(f"ap_{label}", np.nan)}
        for place, label in enumerate(scores.labels)
    ]


def _markdown(table: pd.DataFrame) -> list[str]:
    values = table.to_dict("index")
    base = values.get(ALTRUISTIC, {})

    def cell(row: str, column: str) -> str:
        value = float(values[row][column])
        if not np.isfinite(value):
            return NOTHING
        if column == "Var" or row in ("Var", "VarFL"):
            return f"{value:.5f}"
        plain = not base or row in (ALTRUISTIC, "Mean", "MeanFL")
        return f"{value:.3f}" if plain else f"{value:.3f} ({signed(value - float(base[column]), 3)})"

    rows = [[row, *(cell(row, column) for column in table.columns)] for row in values]
    return markdown_table(["", *table.columns], rows, "|---" + "|--:" * len(table.columns) + "|")


def _missing(scores: LabelScores, variant: str, personal: Collection[str]) -> list[str]:
    """Name the rows without a score of all frames, and the sites whose counts are missing."""
    lines = []
    for row in scores.rows(variant):
        without = dict.fromkeys(site for arm in scores.models(row, variant) for site in scores.without_counts(arm))
        if without and row not in personal:
            lines += [f"{row} has no score of all frames: no counts came from {', '.join(without)}.", ""]
    return lines
