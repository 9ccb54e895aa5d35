"""Layouts of what the rounds of a job recorded: a number over the rounds, and what an arm costs."""

from typing import cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedmed.reports.curves import end_labels
from fedmed.reports.palette import LIGHT
from fedmed.reports.plots import WIDTH, png, style
from fedmed.reports.words import NOTHING, fixed
from research.runner.arm_figures import heading
from research.runner.score_table import ROUNDS, SERVER, SPEED, selected
from research.runner.site_scores import mean_and_spread
from research.runner.table_layout import ShownArm, ShownTable, TableLayout
from research.runner.words_of_tables import csv_bytes, markdown_table, seeds_phrase

MEGABYTE, IMAGES = 1e6, "images"


class RoundCurves(TableLayout):
    """A number of the rounds, such as ``score``, the mean validation score of the labelled sites: a line an arm.

    Attributes:
        value: its name in ``rounds.jsonl``.
        label: words for it.
    """

    value: str = "score"
    label: str

    def names(self) -> set[str]:
        return {"table.csv", "table.md", "figure.png"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        rows = of_rounds(shown, self.value)
        if rows.empty:
            return {}
        found = rows.groupby(["arm", "round"], sort=True)["value"].agg(["mean", "std", "size"]).reset_index()
        lines = [[arm.name, *self._ends(found[found["arm"] == arm.name])] for arm in shown.arms]
        table = markdown_table(["arm", "first round", "last round", "highest"], lines, "|---|--:|--:|--:|")
        words = f"{self.label}; {seeds_phrase(found['size'])}."
        with style():
            picture = png(self._figure(shown, found, words))
        text = "\n".join([f"# {shown.title}", "", words, "", *table, ""])
        return {"table.md": text.encode(), "table.csv": csv_bytes(found), "figure.png": picture}

    def _ends(self, own: pd.DataFrame) -> list[str]:
        values = own["mean"].to_numpy()
        return [f"{value:.3f}" for value in (values[0], values[-1], values.max())] if len(values) else [NOTHING] * 3

    def _figure(self, shown: ShownTable, found: pd.DataFrame, words: str) -> Figure:
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        axes, ends = figure.subplots(), []
        for place, arm in enumerate(shown.arms):
            own = found[found["arm"] == arm.name]
            if len(own):
                colour, spread = LIGHT[place % len(LIGHT)], own["std"].fillna(0)
                axes.plot(own["round"], own["mean"], color=colour, marker="o", markersize=3)
                axes.fill_between(
                    own["round"], own["mean"] - spread, own["mean"] + spread, color=colour, alpha=0.15, linewidth=0
                )
                ends.append((float(own["mean"].iloc[-1]), arm.name, colour))
        axes.set_xlabel("rounds behind the model" if self.value == "score" else "round")
        end_labels(axes, ends)
        heading(figure, shown.title, words)
        return figure


class RoundCosts(TableLayout):
    """What an arm costs: megabytes of tensors, seconds, and frames that its model segments in a second.

    Bytes are those of the tensors that a job's rounds noted, of one site in one round; what NVFlare writes beside them,
    and models that are released or only scored, are not among them. Seconds are of this machine and its load. Of an arm
    of several jobs, such as one a site, all of it is of one job.
    """

    def names(self) -> set[str]:
        return {"table.csv", "table.md"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        rows = [row for arm in shown.arms if (row := _costs(shown, arm))]
        if not rows:
            return {}
        heads = list(COSTS.values())
        lines = [[str(row["arm"]), *(fixed(cast("float | None", row.get(head)), 2) for head in heads)] for row in rows]
        table = markdown_table(["arm", *heads], lines, "|---" + "|--:" * len(heads) + "|")
        words = (
            "Means over rounds, seeds and, where each site trains alone, over these jobs. Megabytes are those of the "
            "tensors in messages; seconds are of this machine."
        )
        text = "\n".join([f"# {shown.title}", "", words, "", *table, ""])
        return {"table.md": text.encode(), "table.csv": csv_bytes(pd.DataFrame(rows))}


COSTS = {
    "bytes_up": "MB up, a site and round",
    "bytes_down": "MB down, a site and round",
    "seconds": "seconds a round",
    "server_seconds": "of them at the server",
    "frames_per_second": "frames/s",
}


def of_rounds(shown: ShownTable, name: str) -> pd.DataFrame:
    """Columns arm, seed, round, counted from 0, and value, of a number of the rounds."""
    rows = selected(shown.evidence.frame, list=ROUNDS, site=SERVER, metric=name).astype({"arm": str, "unit": str})
    rows = rows[rows["arm"].isin([arm.name for arm in shown.arms])]
    return rows.assign(round=rows["unit"].astype(int))[["arm", "seed", "round", "value"]]


def _costs(shown: ShownTable, arm: ShownArm) -> dict[str, str | float]:
    frame = selected(shown.evidence.frame, arm=arm.name)
    rounds = selected(frame, list=ROUNDS)
    found: dict[str, str | float] = {}
    for name, head in COSTS.items():
        where = selected(frame, list=SPEED) if name == "frames_per_second" else selected(rounds, site=SERVER)
        values = _by_seed(selected(where, metric=name))
        if len(values):
            unit = MEGABYTE * _sites_of_a_job(rounds, name) if name.startswith("bytes") else 1
            found[head] = mean_and_spread(values)[0] / unit
    return {"arm": arm.name, **found} if found else {}


def _sites_of_a_job(rounds: pd.DataFrame, name: str) -> float:
    """How many sites train in one of an arm's jobs: a site has one row of images in it, and it has one first round."""
    jobs = len(selected(rounds, site=SERVER, unit="0", metric=name))
    return len(selected(rounds, unit="all", metric=IMAGES)) / jobs or 1


def _by_seed(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby("seed")["value"].mean() if len(rows) else pd.Series(dtype=np.float64)
