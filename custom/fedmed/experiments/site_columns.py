"""A layout: a row an arm, a column a site and list; mean and standard deviation over seeds."""

from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from fedmed.errors import JobError
from fedmed.experiments.arm_figures import arm_figure
from fedmed.experiments.arm_lines import ArmFigure
from fedmed.experiments.score_kinds import UnitMean
from fedmed.experiments.table_layout import ShownArm, ShownTable, TableLayout
from fedmed.experiments.words_of_tables import bold_if, markdown_table, over_seeds, seeds_phrase
from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING, count

SUFFIXES = {"selected": "", "last": "_last"}
CAPTIONS = {"selected": "model selected by the labelled sites' validation {label}", "last": "model of the last round"}
LISTS = ("valid", "test")  # a site's columns in their order
Means = dict[tuple[str, str, str], dict[int, float]]  # (arm, site, list) -> seed -> mean


class SiteColumns(TableLayout):
    """Two sets of files, for the selected model and for that of the last round.

    Attributes:
        score: which of the table's; None = the first.
        baseline: arm that the figure draws as a line to compare with.
        x_label: what the arms' ``x`` is. With it the figure has the score against x; without it a row an arm.
        x_log: logarithmic x.
    """

    score: str | None = None
    baseline: str | None = None
    x_label: str | None = None
    x_log: bool = False

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
        kinds = (("table", "md"), ("table", "csv"), ("figure", "png"))
        return {f"{name}{suffix}.{kind}" for suffix in SUFFIXES.values() for name, kind in kinds}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        kinds = shown.evidence.kinds
        kind = kinds[self.score or next(iter(kinds))]
        if not isinstance(kind, UnitMean):
            raise JobError(f"'{kind.label}' is not a score of single cases; show it in another layout")
        for model, suffix in SUFFIXES.items():
            means, units = run_means(shown, kind, model)
            rows = table_rows(shown, means, units)
            if rows:
                caption = CAPTIONS[model].format(label=kind.label)
                contents[f"table{suffix}.md"] = table_markdown(shown, rows, kind, caption).encode()
                contents[f"table{suffix}.csv"] = table_csv(rows, kind.metric).encode()
            tested = {(arm, site): list(seeds.values()) for (arm, site, name), seeds in means.items() if name == "test"}
            if tested:
                contents[f"figure{suffix}.png"] = self._figure(shown, tested, f"Test {kind.label}, {caption}")
        return contents

    def _figure(self, shown: ShownTable, means: dict[tuple[str, str], list[float]], caption: str) -> bytes:
        some_x = any(arm.x is not None for arm in shown.arms)  # of some of the arms, only the baseline may be left
        drawn = ArmFigure(
            title=shown.title,
            caption=f"{caption}; {seeds_phrase(len(seeds) for seeds in means.values())}",
            groups=in_groups(shown.arms),
            sites=shown.sites,
            baseline=self.baseline if self.baseline in [arm.name for arm in shown.arms] else None,
            x_label=self.x_label if some_x else None,
            x_log=self.x_log,
        )
        with style():
            return png(arm_figure(drawn, means))


def in_groups(arms: Sequence[ShownArm]) -> list[tuple[str, list[ShownArm]]]:
    """(group, its arms), arms without a group first, groups as they first appear."""
    found: dict[str, list[ShownArm]] = {"": []}
    for arm in arms:
        found.setdefault(arm.group, []).append(arm)
    return [(group, own) for group, own in found.items() if own]


def run_means(shown: ShownTable, kind: UnitMean, model: str) -> tuple[Means, dict[tuple[str, str, str], int]]:
    """Means over the units of each seed, and the number of units, of every shown arm, site and list with scores."""
    frame, wanted = shown.evidence.frame, {arm.name for arm in shown.arms}
    keep = (frame["metric"] == kind.metric) & (frame["model"] == model) & frame["list"].isin(LISTS)
    own = frame[keep & frame["arm"].isin(wanted) & frame["site"].isin(list(shown.sites))]
    means: Means = {}
    for (arm, site, name, seed), values in own.groupby(["arm", "site", "list", "seed"], observed=True)["value"]:
        means.setdefault((arm, site, name), {})[int(seed)] = fmean(values)
    units = own.groupby(["arm", "site", "list"], observed=True)["unit"].nunique().to_dict()
    return means, units


def table_rows(shown: ShownTable, means: Means, units: dict[tuple[str, str, str], int]) -> list[dict[str, Any]]:
    """Group, arm, site, list, n_seeds, n_cases, mean and std of every arm, site and list, in the table's order."""
    rows = []
    for group, arms in in_groups(shown.arms):
        for key in [(arm.name, site, name) for arm in arms for site in shown.sites for name in LISTS]:
            if key in means:
                mean, std = over_seeds(list(means[key].values()))
                row = {"group": group, "arm": key[0], "site": key[1], "list": key[2], "n_seeds": len(means[key])}
                rows.append({**row, "n_cases": units[key], "mean": mean, "std": std})
    return rows


def table_csv(rows: Sequence[dict[str, Any]], metric: str) -> str:
    """A line a row, unrounded; the standard deviation of one seed is empty."""
    names = {"mean": f"{metric}_mean", "std": f"{metric}_std"}
    return pd.DataFrame(rows).rename(columns=names).to_csv(index=False, lineterminator="\n")


def table_markdown(shown: ShownTable, rows: Sequence[dict[str, Any]], kind: UnitMean, caption: str) -> str:
    """Rows are arms below their group, columns sites with their lists; the best test mean of a column is bold."""
    cells = {(row["arm"], row["site"], row["list"]): row for row in rows}
    there = {key[1:] for key in cells}
    columns = [(site, name) for site in shown.sites for name in LISTS if (site, name) in there]
    own = {column: [row for key, row in cells.items() if key[1:] == column] for column in columns}
    best = {column: _best(found) if column[1] == "test" else None for column, found in own.items()}
    lines: list[list[str]] = []
    for group, arms in in_groups(shown.arms):
        named = [arm.name for arm in arms if any(key[0] == arm.name for key in cells)]
        if group and named:
            lines.append([f"*{group}*", *[""] * len(columns)])
        lines += [[name, *(_cell(cells.get((name, *column)), best[column]) for column in columns)] for name in named]
    head = ["arm", *(_head(column, own[column], kind.unit) for column in columns)]
    table = markdown_table(head, lines)
    table[1] = "|---" + "|--:" * len(columns) + "|"
    phrase = seeds_phrase(row["n_seeds"] for row in rows)
    return "\n".join([f"# {shown.title}", "", f"{kind.label}, {caption}; {phrase}.", "", *table, ""])


def _head(column: tuple[str, str], rows: Sequence[dict[str, Any]], unit: str) -> str:
    numbers = sorted({row["n_cases"] for row in rows})
    several = f"{numbers[0]} to {numbers[-1]} {unit}s"
    cases = count(numbers[0], unit) if len(numbers) == 1 else several
    return f"{column[0]} valid" if column[1] == "valid" else f"{column[0]} test ({cases})"


def _best(rows: Sequence[dict[str, Any]]) -> str | None:
    """The highest mean as printed, so that rows that read the same are both bold."""
    return f"{max(row['mean'] for row in rows):.3f}" if len(rows) > 1 else None


def _cell(row: dict[str, Any] | None, best: str | None) -> str:
    if row is None:
        return NOTHING
    printed = bold_if(row["mean"], best)
    return printed if row["std"] is None else f"{printed} ± {row['std']:.3f}"
