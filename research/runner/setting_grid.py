"""A layout: a grid of two settings, the arm's ``group`` by its ``x``; a table and a heat map."""

from collections.abc import Collection, Sequence

import pandas as pd
from matplotlib.figure import Figure

from fedmed.errors import JobError
from fedmed.reports.cells import draw_cells
from fedmed.reports.palette import INK
from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING
from research.runner.arm_figures import heading
from research.runner.site_columns import CAPTIONS, SUFFIXES
from research.runner.site_means import places, unit_mean
from research.runner.site_scores import in_columns, mean_and_spread, means_of_units
from research.runner.table_layout import ShownArm, ShownTable, TableLayout
from research.runner.words_of_tables import csv_bytes, markdown_table, mean_cell, seeds_phrase


class SettingGrid(TableLayout):
    """The mean score over some sites, of each of which it counts the same.

    Attributes:
        x_label: what the arms' ``x`` is.
        sites: over which the mean is, as the table names them.
        score: which of the table's; None = the first.
    """

    x_label: str
    sites: list[str]
    score: str | None = None

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        cells = [(arm.group, arm.x) for arm in arms]
        if None in [x for _, x in cells] or len(set(cells)) < len(cells):
            raise JobError("each arm of a grid needs an x and a group, and no two the same ones")

    def names(self) -> set[str]:
        return {f"{name}{suffix}.{end}" for suffix in SUFFIXES.values() for name, end in FILES}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        kind = unit_mean(shown, self.score)
        _, means = places(shown, [], {"": self.sites})
        contents: dict[str, bytes] = {}
        for model, suffix in SUFFIXES.items():
            found = in_columns(means_of_units(shown.evidence.frame, kind, model), [], means)[""]
            rows = _rows(shown.arms, found)
            if rows.empty:
                continue
            words = f"{kind.label}, {CAPTIONS[model].format(label=kind.label)}, mean of {', '.join(means[''])}; "
            words += seeds_phrase(rows["n_seeds"])
            contents[f"table{suffix}.md"] = self._markdown(shown.title, words, rows).encode()
            contents[f"table{suffix}.csv"] = csv_bytes(rows)
            with style():
                contents[f"figure{suffix}.png"] = png(self._figure(shown.title, words, rows))
        return contents

    def _markdown(self, title: str, words: str, rows: pd.DataFrame) -> str:
        best = f"{rows['mean'].max():.3f}"
        cells = {(g, x): mean_cell(mean, std, best) for g, x, mean, std in rows[CELL].itertuples(index=False)}
        groups, xs = dict.fromkeys(rows["group"]), sorted(set(rows["x"]))
        lines = [[g, *(cells.get((g, x), NOTHING) for x in xs)] for g in groups]
        table = markdown_table([self.x_label, *(f"{x:g}" for x in xs)], lines, "|---" + "|--:" * len(xs) + "|")
        return "\n".join([f"# {title}", "", f"{words}.", "", *table, ""])

    def _figure(self, title: str, words: str, rows: pd.DataFrame) -> Figure:
        wide = rows.pivot(index="group", columns="x", values="mean").reindex(list(dict.fromkeys(rows["group"])))
        figure = Figure(figsize=(6.4, 1.6 + 0.5 * len(wide)), layout="constrained")
        axes = figure.subplots()
        values = wide.to_numpy()
        texts = [[NOTHING if pd.isna(value) else f"{value:.2f}" for value in row] for row in values]
        draw_cells(axes, texts, values, values == rows["mean"].max())
        axes.set_xticks(range(wide.shape[1]), [f"{x:g}" for x in wide.columns])
        axes.set_yticks(range(len(wide)), list(wide.index), color=INK)
        axes.set_xlabel(self.x_label)
        heading(figure, title, words)
        return figure


FILES = (("table", "md"), ("table", "csv"), ("figure", "png"))
CELL = ["group", "x", "mean", "std"]


def _rows(arms: Sequence[ShownArm], found: pd.Series) -> pd.DataFrame:
    rows = []
    for arm in arms:
        own = found[found.index.get_level_values("arm") == arm.name]
        if len(own):
            mean, std = mean_and_spread(own)
            rows.append(
                {"group": arm.group, "x": arm.x, "arm": arm.name, "n_seeds": len(own), "mean": mean, "std": std}
            )
    return pd.DataFrame(rows)
