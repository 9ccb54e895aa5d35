"""Layouts beside the tables of several labels: their tests, and figures of rounds and single labels."""

from collections.abc import Callable, Collection, Sequence

import pandas as pd
from matplotlib.figure import Figure

from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING
from research.runner.label_bars import label_bars
from research.runner.label_claims import compare_labels
from research.runner.label_figures import compared_rows, label_cells, round_lines, score_matrix, site_lines
from research.runner.label_scores import ALTRUISTIC, VIEWS
from research.runner.label_tables import check_rows
from research.runner.paired_statistics import holm
from research.runner.table_layout import ShownArm, ShownTable, TableLayout
from research.runner.words_of_tables import cannot_tell, csv_bytes, markdown_table, probability


class LabelTests(TableLayout):
    """p of each federated row against models trained alone, everywhere and at home, and pooled data (Table 6.1).

    By both tests of :func:`research.runner.label_claims.compare_labels`, Holm-adjusted over the table's p of each.
    """

    federated: list[str]
    pooled: str

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        check_rows("federated", [*self.federated, self.pooled], arms)

    def names(self) -> set[str]:
        return {"table.md", "table.csv"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        scores = shown.evidence.labels
        pairs = [(row, view) for row in self.federated for view in VIEWS]
        pairs += [(self.pooled, row) for row in self.federated]
        found = [
            {"row": worse if better == self.pooled else better, "asked": _asked(better, worse, self.pooled)}
            | dict(one.record)
            for better, worse in pairs
            if scores.have([better, worse])
            for one in compare_labels(scores, better, worse)
        ]
        if not found:
            return {}
        table = pd.DataFrame(found)
        table["p_holm"] = table.groupby("test")["p"].transform(_adjusted)
        both, too_few = zip(table["p"], table["p_holm"], strict=True), cannot_tell(len(scores.strata), "video")
        cells = table.assign(
            cell=[too_few if pd.isna(p) else f"{probability(p)} ({probability(holm_p)})" for p, holm_p in both]
        )
        lines = [f"# {shown.title}", "", "One-sided p (Holm-adjusted over the table).", ""]
        for test, own in cells.groupby("test", sort=False):
            wide = own.pivot(index="row", columns="asked", values="cell")
            wide = wide.reindex(index=own["row"].unique(), columns=own["asked"].unique()).fillna(NOTHING)
            rows = [[str(name), *map(str, of_row)] for name, of_row in zip(wide.index, wide.to_numpy(), strict=True)]
            lines += [f"## {test}", "", *markdown_table(["arm", *wide.columns], rows), ""]
        return {"table.md": "\n".join(lines).encode(), "table.csv": csv_bytes(table)}


class LabelFigures(TableLayout):
    """What the rounds and single labels show, without a table (Fig. 6.3 to 6.6, A.2 to A.4)."""

    rounds: dict[str, str]  # metric of the rounds -> its words; the scores, losses and geometry of updates
    followed: str  # row whose sites' cosines are drawn
    compared: list[str] = []  # rows to draw side by side, such as weighted and unweighted means
    bars: list[str] = []  # rows to draw label by label at each site, with ALTV and EGOV for models of one site
    personal: list[str] = []  # rows whose sites have models of their own

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        check_rows("followed", [self.followed], arms)
        check_rows("compared", [*self.compared, *self.personal], arms)
        check_rows("bars", [row for row in self.bars if row not in VIEWS], arms)

    def names(self) -> set[str]:
        return {"rounds.png", "cosines.png", "compared.png", "matrix_skip.png", "labels.png", "bars.png"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        scores, title = shown.evidence.labels, shown.title
        rows = list(dict.fromkeys(row for name in scores.variants for row in scores.rows(name)))
        everywhere = [row for row in rows if scores.have([row])]
        lines = [row for row in rows if row != ALTRUISTIC]
        figures: dict[str, Callable[[], Figure]] = {}
        figures |= {"rounds.png": lambda: round_lines(title, scores, lines, self.rounds)} if rows else {}
        if scores.have([self.followed]):
            figures["cosines.png"] = lambda: site_lines(title, scores, self.followed, "cosine", "Cosine to the mean")
        if self.compared and scores.have(self.compared):
            figures["compared.png"] = lambda: compared_rows(title, scores, self.compared)
        if self.bars and scores.have(self.bars):
            figures["bars.png"] = lambda: label_bars(title, scores, self.bars)
        if everywhere:
            figures["matrix_skip.png"] = lambda: score_matrix(title, scores, self.personal, "skip")
            figures["labels.png"] = lambda: label_cells(title, scores, everywhere)
        with style():
            return {name: png(draw()) for name, draw in figures.items()}


def _adjusted(p: pd.Series) -> pd.Series:
    """By Holm, of those that there are."""
    known = p.dropna()
    return pd.Series(holm(known.tolist()), known.index).reindex(p.index)


def _asked(better: str, worse: str, pooled: str) -> str:
    return f"{worse} < arm" if better != pooled else f"arm < {pooled}"
