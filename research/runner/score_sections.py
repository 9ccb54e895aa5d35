"""A layout: a section for each score, a row an arm, a column a site or a mean of several."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from fedmed.errors import JobError
from fedmed.reports.words import NOTHING
from research.runner.site_columns import CAPTIONS, SUFFIXES, in_groups
from research.runner.site_means import places, unit_mean
from research.runner.site_scores import in_columns, mean_and_spread, means_of_units
from research.runner.table_layout import ShownArm, ShownTable, TableLayout, table_lines
from research.runner.words_of_tables import csv_bytes, markdown_table, mean_cell, seeds_phrase


class ScoreSections(TableLayout):
    """Test scores of the model of the last round and of the selected one, such as an overlap and a distance.

    Attributes:
        scores: which of the table's, in this order; empty = all.
        sites: that are shown, as the table names them; empty = all of its test sites.
        means: heading -> sites, of each of which the mean counts the same.
        lowest: scores whose lowest mean is the best one.
    """

    scores: list[str] = []
    sites: list[str] = []
    means: dict[str, list[str]] = {}
    lowest: list[str] = []

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        for key, names in (("scores", self.scores), ("lowest", self.lowest)):
            if unknown := [name for name in names if name not in scores]:
                raise JobError(f"'{key}' names '{unknown[0]}'; it must be one of the table's: {', '.join(scores)}")

    def names(self) -> set[str]:
        return {f"table{suffix}.{ending}" for suffix in SUFFIXES.values() for ending in ("md", "csv")}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        for model, suffix in SUFFIXES.items():
            sections = {name: self._rows(shown, name, model) for name in self.scores or shown.evidence.kinds}
            rows = pd.DataFrame([row for section in sections.values() for row in section])
            if rows.empty:
                continue
            lines = [f"# {shown.title}", ""]
            for name, section in sections.items():
                caption = CAPTIONS[model].format(label=unit_mean(shown, None).label)
                lines += self._section(
                    shown.arms, pd.DataFrame(section), f"{unit_mean(shown, name).label}, {caption}", name
                )
            contents[f"table{suffix}.md"] = "\n".join(lines).encode()
            contents[f"table{suffix}.csv"] = csv_bytes(rows)
        return contents

    def _rows(self, shown: ShownTable, name: str, model: str) -> list[dict[str, object]]:
        """Score, column, arm, n_seeds, mean and std of every arm and column that has a number."""
        kind, names = unit_mean(shown, name), {arm.name for arm in shown.arms}
        sites, means = places(shown, self.sites, self.means)
        values = means_of_units(shown.evidence.frame, kind, model)
        columns = in_columns(values[values.index.isin(names, level="arm")], sites, means)
        rows = []
        for head, column in columns.items():
            for arm, of_arm in column.groupby("arm"):
                mean, std = mean_and_spread(of_arm)
                common = {"score": kind.label, "column": head, "arm": arm, "n_seeds": len(of_arm)}
                rows.append({**common, "mean": mean, "std": std})
        return rows

    def _section(self, arms: Sequence[ShownArm], rows: pd.DataFrame, words: str, score: str) -> list[str]:
        if rows.empty:
            return []
        wide: Mapping[str, pd.DataFrame] = {str(head): part.set_index("arm") for head, part in rows.groupby("column")}
        heads = [head for head in dict.fromkeys(rows["column"])]
        pick = "min" if score in self.lowest else "max"
        best = {head: f"{wide[head]['mean'].agg(pick):.3f}" for head in heads if len(wide[head]) > 1}

        def cell(arm: str, head: str) -> str:
            part = wide[head]
            return mean_cell(part["mean"][arm], part["std"][arm], best.get(head)) if arm in part.index else NOTHING

        there = [arm for arm in in_groups(arms) if arm.name in set(rows["arm"])]
        cells = {arm.name: [cell(arm.name, head) for head in heads] for arm in there}
        table = markdown_table(["arm", *heads], table_lines(there, cells), "|---" + "|--:" * len(heads) + "|")
        return [f"{words}; {seeds_phrase(rows['n_seeds'])}.", "", *table, ""]
