"""A layout: a row an arm, a column a site or a mean of several; a table by videos, and one of all frames together."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from fedmed.errors import JobError
from fedmed.reports.words import NOTHING
from research.runner.score_kinds import UnitMean
from research.runner.site_columns import CAPTIONS, SUFFIXES, in_groups
from research.runner.site_scores import in_columns, mean_and_spread, means_of_units, pooled_f1, units
from research.runner.table_layout import ShownArm, ShownTable, TableLayout, table_lines
from research.runner.words_of_tables import csv_bytes, markdown_table, mean_cell, seeds_phrase

Cells = dict[str, dict[str, tuple[float, float, int]]]  # column -> arm -> mean, standard deviation, seeds


class SiteMeans(TableLayout):
    """Test scores of the model of the last round and of the selected one.

    Attributes:
        score: which of the table's; None = the first.
        sites: that are shown, as the table names them; empty = all of its test sites.
        means: heading -> sites, of each of which the mean counts the same.
        pooled: words for the score of all frames of a site together, from counts that sites send; None = no such table.
        ranges: the lowest and highest score of a unit, seed and turn beside each mean.
    """

    score: str | None = None
    sites: list[str] = []
    means: dict[str, list[str]] = {}
    pooled: str | None = None
    ranges: bool = False

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        if self.score is not None and self.score not in scores:
            raise JobError(f"'score' is '{self.score}'; it must be one of the table's: {', '.join(scores)}")

    def names(self) -> set[str]:
        return {f"table{suffix}.{ending}" for suffix in SUFFIXES.values() for ending in ("md", "csv")}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        kind = unit_mean(shown, self.score)
        sites, means = places(shown, self.sites, self.means)
        contents: dict[str, bytes] = {}
        for model, suffix in SUFFIXES.items():
            frame, caption = shown.evidence.frame, CAPTIONS[model].format(label=kind.label)
            values = {kind.label: self._by_column(means_of_units(frame, kind, model), shown.arms, sites, means)}
            if not any(values[kind.label].values()):
                continue
            if self.pooled:
                values[self.pooled] = self._by_column(pooled_f1(frame, model), shown.arms, sites, means)
            lines = [f"# {shown.title}", ""]
            for place, (label, columns) in enumerate(values.items()):
                ranges = _ranges(frame, kind, model) if self.ranges and not place else {}
                lines += self._section(shown.arms, columns, f"{label}, {caption}", ranges)
            contents[f"table{suffix}.md"] = "\n".join(lines).encode()
            contents[f"table{suffix}.csv"] = csv_bytes(_numbers(values))
        return contents

    def _by_column(
        self, values: pd.Series, arms: Sequence[ShownArm], sites: Sequence[str], means: Mapping[str, Sequence[str]]
    ) -> Cells:
        names = {arm.name for arm in arms}
        columns = in_columns(values[values.index.isin(names, level="arm")], sites, means)
        return {
            head: {
                arm: (*mean_and_spread(of_arm), len(of_arm))
                for arm, of_arm in column.groupby("arm")
                if arm in names and len(of_arm)
            }
            for head, column in columns.items()
        }

    def _section(
        self, arms: Sequence[ShownArm], values: Cells, words: str, ranges: Mapping[tuple[str, str], str]
    ) -> list[str]:
        seeds = seeds_phrase(n for col in values.values() for _, _, n in col.values())
        there = [arm for arm in in_groups(arms) if any(arm.name in col for col in values.values())]
        best = {head: f"{max(mean for mean, _, _ in col.values()):.3f}" for head, col in values.items() if len(col) > 1}

        def cell(arm: str, head: str) -> str:
            if arm not in values[head]:
                return NOTHING
            mean, std, _ = values[head][arm]
            return " ".join(filter(None, [mean_cell(mean, std, best.get(head)), ranges.get((arm, head), "")]))

        cells = {arm.name: [cell(arm.name, head) for head in values] for arm in there}
        table = markdown_table(["arm", *values], table_lines(there, cells), "|---" + "|--:" * len(values) + "|")
        more = " In brackets: lowest and highest video, of all seeds and turns." if ranges else ""
        return [f"{words}; {seeds}.{more}", "", *table, ""]


def unit_mean(shown: ShownTable, name: str | None) -> UnitMean:
    """The score of that name, or the table's first; a JobError if single units have none of it."""
    kinds = shown.evidence.kinds
    kind = kinds[name or next(iter(kinds))]
    if not isinstance(kind, UnitMean):
        raise JobError(f"'{kind.label}' is not a score of single cases; show it in another layout")
    return kind


def places(
    shown: ShownTable, sites: Sequence[str], means: Mapping[str, Sequence[str]]
) -> tuple[list[str], dict[str, list[str]]]:
    """Sites, and sites of each mean, as the scores name them; a JobError for one that the table does not test."""
    names = shown.evidence.sites
    if unknown := [site for site in (*sites, *sum(map(list, means.values()), [])) if site not in names]:
        raise JobError(f"the layout names the site '{unknown[0]}'; the table tests: {', '.join(names)}")
    return [names[site] for site in sites or names], {k: [names[site] for site in part] for k, part in means.items()}


def _ranges(frame: pd.DataFrame, kind: UnitMean, model: str) -> dict[tuple[str, str], str]:
    ends = units(frame, kind, model).groupby(["arm", "site"])["value"].agg(["min", "max"])
    return {key: f"[{low:.3f}, {high:.3f}]" for key, low, high in ends.itertuples()}


def _numbers(values: Mapping[str, Cells]) -> pd.DataFrame:
    rows = [
        {"score": label, "column": head, "arm": arm, "n_seeds": n, "mean": mean, "std": std}
        for label, of_label in values.items()
        for head, column in of_label.items()
        for arm, (mean, std, n) in column.items()
    ]
    return pd.DataFrame(rows)
