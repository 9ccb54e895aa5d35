"""A layout: a row an arm, a column a share of the labels, a section for each task, test, protocol, model and score."""

from collections.abc import Callable, Collection, Sequence
from itertools import product
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd

from fedmed.errors import JobError
from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING
from research.runner.patient_scores import PatientScores
from research.runner.share_figures import share_figure
from research.runner.table_layout import ShownArm, ShownTable, TableLayout, table_lines
from research.runner.words_of_tables import csv_bytes, markdown_table, mean_cell, percent, several

COLUMNS = ["group", "arm", "task", "list", "protocol", "fraction", "model", "metric", "n_seeds"]
COLUMNS += ["mean", "std", "low", "high"]
MODEL_NAMES = {
    "last": "last epoch",
    "highest": "epoch with the highest test accuracy, as the paper reports; chosen on the test list, so too high",
}


class ShareColumns(TableLayout):
    """One set of files, and ``models.csv`` with a line a trained model.

    ``external`` are the scores that are shown of a test at another hospital: a threshold, say, does not travel.
    """

    protocols: dict[str, str] = {}  # what a person reads for each, in the order of the sections; otherwise its name
    figure: list[str] = []  # arms to draw; empty = all, without the parts of any
    external: list[str] = []

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        names = [arm.name for arm in arms]
        for key, values, allowed in (("figure", self.figure, names), ("external", self.external, scores)):
            if not set(values) <= set(allowed):
                raise JobError(f"'{key}' is {values}; it must be some of: {', '.join(allowed)}")

    def names(self) -> set[str]:
        return {"models.csv", "table.csv", "table.md", "figure.png"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        scores, kinds = shown.evidence.patients, shown.evidence.kinds
        rows = share_rows(shown.arms, scores)
        tables = {"models.csv": scores.models(), "table.csv": rows}
        contents = {name: csv_bytes(table) for name, table in tables.items()}
        contents["table.md"] = self._markdown(shown, rows).encode()
        arms = [arm.name for arm in shown.arms if (arm.name in self.figure if self.figure else not arm.part)]
        drawn = rows[rows["arm"].isin(arms) & (rows["list"] == "internal") & (rows["model"] == "last")]
        if len(drawn):
            labels = {name: kind.label for name, kind in kinds.items()}
            with style():
                contents["figure.png"] = png(share_figure(shown.title, arms, drawn, labels, self.protocols))
        return contents

    def _markdown(self, shown: ShownTable, rows: pd.DataFrame) -> str:
        seeds = several(rows["n_seeds"], "seed")
        lines = [f"# {shown.title}", "", f"Mean ± standard deviation over {seeds} [95 % interval over patients].", ""]
        sections = dict(list(rows.groupby(["protocol", "model", "task", "list", "metric"], sort=False)))
        order = {name: place for place, name in enumerate(self.protocols)}
        for key in sorted(sections, key=lambda s: (order.get(s[0], len(order)), s[1] == "highest", s[3] == "external")):
            protocol, model, task, test, metric = key
            if test == "internal" or metric in self.external:
                other = "" if test == "internal" else ", tested at the other hospital"
                several_models = rows.loc[rows["protocol"] == protocol, "model"].nunique() > 1
                epoch = f", {MODEL_NAMES[model]}" if several_models else ""
                label, words = shown.evidence.kinds[metric].label, self.protocols.get(protocol, protocol)
                lines += [
                    f"## {task}{other}: {label}, {words}{epoch}",
                    "",
                    *section(shown.arms, sections[key], "fraction", _of_the_labels),
                    "",
                ]
        return "\n".join(lines)


def share_rows(arms: Sequence[ShownArm], scores: PatientScores) -> pd.DataFrame:
    """Every arm, setting and score, in the table's order, with a 95 % interval of the mean over patients."""
    rows = []
    for setting, score, arm in product(scores.settings(), scores.kinds, arms):
        if scores.seeds(arm.name, setting):
            seeds = np.stack(list(scores.left_out(arm.name, setting, score).values()))
            means = seeds[:, 0].tolist()
            spread = stdev(means) if len(means) > 1 else np.nan
            keys = {"group": arm.group, "arm": arm.name, **vars(setting), "metric": score, "n_seeds": len(means)}
            low, high = scores.span(score, seeds.mean(0))
            rows.append({**keys, "mean": fmean(means), "std": spread, "low": low, "high": high})
    return pd.DataFrame(rows, columns=COLUMNS)


def section(arms: Sequence[ShownArm], rows: pd.DataFrame, by: str, words: Callable[[Any], str]) -> list[str]:
    """A table of rows as of :func:`share_rows`, with a column for each value of ``by``, which ``words`` names."""
    best = rows.groupby(by)["mean"].transform("max").map("{:.3f}".format)
    cells = [
        mean_cell(row["mean"], row["std"], best_here) + _brackets(row["low"], row["high"])
        for row, best_here in zip(rows.to_dict("records"), best, strict=True)
    ]
    wide = rows.assign(cell=cells).pivot(index="arm", columns=by, values="cell").fillna(NOTHING)
    return markdown_table(["arm", *map(words, wide)], table_lines(arms, wide.T.to_dict("list")))


def _brackets(low: float, high: float) -> str:
    return "" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]"


def _of_the_labels(fraction: float) -> str:
    return f"{percent(fraction)} of the labels"
