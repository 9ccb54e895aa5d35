"""A layout: a row an arm, a column a site and list; mean and standard deviation over seeds."""

from collections.abc import Collection, Sequence
from statistics import fmean, mean, stdev

import numpy as np
import pandas as pd

from fedmed.errors import JobError
from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING
from research.runner.arm_figures import ArmFigure, arm_figure
from research.runner.patient_scores import block_of
from research.runner.score_kinds import ScoreKind, UnitMean
from research.runner.table_layout import ShownArm, ShownTable, TableLayout, table_lines
from research.runner.words_of_tables import csv_bytes, markdown_table, mean_cell, seeds_phrase, several

SUFFIXES = {"selected": "", "last": "_last"}
CAPTIONS = {"selected": "model selected by the labelled sites' validation {label}", "last": "model of the last round"}
LISTS = ("valid", "test")  # a site's columns in their order
KEYS = ["arm", "site", "list"]


class SiteColumns(TableLayout):
    """Two sets of files, for the selected model and for that of the last round."""

    score: str | None = None  # which of the table's; None = the first
    baseline: str | None = None  # arm that the figure draws as a line to compare with
    x_label: str | None = None  # what the arms' ``x`` is: the figure has the score against it, and not a row an arm
    x_log: bool = False
    selected: str | None = None  # what the result of the jobs is, in words, where no score selects it

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        names, xs = [arm.name for arm in arms], [arm.x for arm in arms if arm.x is not None]
        if self.baseline is not None and self.baseline not in names:
            raise JobError(f"'baseline' is '{self.baseline}'; it must be one of the arms: {', '.join(names)}")
        if self.score is not None and self.score not in scores:
            raise JobError(f"'score' is '{self.score}'; it must be one of the table's: {', '.join(scores)}")
        if self.x_label is not None and not xs:
            raise JobError(f"x_label is '{self.x_label}', but no arm has an x; give the arms one")
        if len(set(xs)) < len(xs):
            raise JobError("two arms have the same x; the figure needs different ones")
        if self.x_log and min(xs, default=1) <= 0:
            raise JobError(f"x = {min(xs)} has no place on a logarithmic axis; leave out x_log")

    def names(self) -> set[str]:
        files = ("table{}.md", "table{}.csv", "figure{}.png")
        return {name.format(suffix) for suffix in SUFFIXES.values() for name in files}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        name = self.score or next(iter(shown.evidence.kinds))
        kind = shown.evidence.kinds[name]
        for model, suffix in SUFFIXES.items():
            scores = _scores(shown, kind, model)
            if scores.empty:
                continue
            means = means_of(scores, kind)
            rows, caption = table_rows(shown, means, scores), self._caption(model, kind)
            metric = kind.metric if isinstance(kind, UnitMean) else name
            names = {"mean": f"{metric}_mean", "std": f"{metric}_std"}
            contents[f"table{suffix}.md"] = table_markdown(shown, rows, kind, caption).encode()
            contents[f"table{suffix}.csv"] = csv_bytes(rows.rename(columns=names))
            tested = means[means.index.get_level_values("list") == "test"].groupby(["arm", "site"])
            if len(tested):
                seeds = {key: values.to_numpy() for key, values in tested}
                contents[f"figure{suffix}.png"] = self._figure(shown, seeds, f"Test {kind.label}, {caption}")
        return contents

    def _caption(self, model: str, kind: ScoreKind) -> str:
        chosen = self.selected if model == "selected" else None
        return chosen or CAPTIONS[model].format(label=kind.label)

    def _figure(self, shown: ShownTable, means: dict[tuple[str, str], np.ndarray], caption: str) -> bytes:
        some_x = any(arm.x is not None for arm in shown.arms)  # of some of the arms, only the baseline may be left
        drawn = ArmFigure(
            title=shown.title,
            caption=f"{caption}; {seeds_phrase(len(seeds) for seeds in means.values())}",
            arms=in_groups(shown.arms),
            sites=shown.sites,
            baseline=self.baseline if self.baseline in [arm.name for arm in shown.arms] else None,
            x_label=self.x_label if some_x else None,
            x_log=self.x_log,
        )
        with style():
            return png(arm_figure(drawn, means))


def in_groups(arms: Sequence[ShownArm]) -> list[ShownArm]:
    """Arms without a group first, then group by group, as these first appear."""
    groups = ["", *dict.fromkeys(arm.group for arm in arms)]
    return sorted(arms, key=lambda arm: groups.index(arm.group))


def table_rows(shown: ShownTable, means: pd.Series, scores: pd.DataFrame) -> pd.DataFrame:
    """Group, arm, site, list, n_seeds, n_cases, mean and std of every arm, site and list, in the table's order.

    Args:
        shown: the table.
        means: (arm, site, list, seed) -> mean over the units.
        scores: that they were made of.
    """
    # Not pandas' own sums: these do not depend on the order of the seeds.
    rows = means.groupby(KEYS).agg(
        n_seeds="size", mean=lambda v: mean(v), std=lambda v: stdev(v) if len(v) > 1 else np.nan
    )
    rows.insert(1, "n_cases", scores.groupby(KEYS)["unit"].nunique())
    arms = in_groups(shown.arms)
    order = [(arm.name, site, name) for arm in arms for site in shown.sites for name in LISTS]
    rows = rows.loc[[key for key in order if key in rows.index]].reset_index()
    rows.insert(0, "group", rows["arm"].map({arm.name: arm.group for arm in arms}))
    return rows


def table_markdown(shown: ShownTable, rows: pd.DataFrame, kind: ScoreKind, caption: str) -> str:
    """Rows are arms below their group, columns sites with their lists; the best test mean of a column is bold."""
    columns = dict(list(rows.groupby(["site", "list"])))
    order = [(site, name) for site in shown.sites for name in LISTS if (site, name) in columns]
    cells, head = {arm: [NOTHING] * len(order) for arm in rows["arm"]}, ["arm"]
    for place, (site, name) in enumerate(order):
        column = columns[site, name]
        cases = f" ({several(column['n_cases'], kind.unit)})" if name == "test" else ""
        head.append(f"{site} {name}{cases}")
        # As printed, so that rows that read the same are both bold.
        best = f"{column['mean'].max():.3f}" if name == "test" and len(column) > 1 else None
        for arm, mean_of, std in zip(column["arm"], column["mean"], column["std"], strict=True):
            cells[arm][place] = mean_cell(mean_of, std, best)
    table = markdown_table(head, table_lines(in_groups(shown.arms), cells), "|---" + "|--:" * len(order) + "|")
    words = f"{kind.label}, {caption}; {seeds_phrase(rows['n_seeds'])}."
    return "\n".join([f"# {shown.title}", "", words, "", *table, ""])


def means_of(scores: pd.DataFrame, kind: ScoreKind) -> pd.Series:
    """(arm, site, list, seed) -> the score of the units.

    Raises:
        DataError: the units do not have what a score of all of them needs.
    """
    groups = scores.groupby([*KEYS, "seed"])
    if isinstance(kind, UnitMean):
        return groups["value"].agg(fmean)
    return pd.Series({key: _of_all(kind, rows, str(key)) for key, rows in groups}).rename_axis([*KEYS, "seed"])


def _of_all(kind: ScoreKind, rows: pd.DataFrame, where: str) -> float:
    """Score that needs all units of a list together, such as AUROC."""
    block = block_of(rows, where)
    return float(kind.weighted(dict(block.values), block.labels, np.ones((1, len(block.labels))))[0])


def _scores(shown: ShownTable, kind: ScoreKind, model: str) -> pd.DataFrame:
    """Rows of the score table that a set of files shows; a score of all units is that of the test list alone."""
    frame, arms = shown.evidence.frame, [arm.name for arm in shown.arms]
    wanted = frame["metric"] == kind.metric if isinstance(kind, UnitMean) else frame["list"] == "test"
    scores = frame[wanted & (frame["model"] == model) & frame["list"].isin(LISTS)]
    scores = scores[scores["arm"].isin(arms) & scores["site"].isin(list(shown.sites))]
    return scores.astype(dict.fromkeys(KEYS, str))
