"""Tables of FedCy (Kassem 2022): a score that falls elsewhere, and a grid of two settings."""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedmed.errors import DataError, JobError
from fedmed.reports.palette import INK
from fedmed.reports.plots import png, style
from fedmed.reports.sheet import draw_cells
from fedmed.reports.words import NOTHING
from research.runner.arm_figures import heading
from research.runner.from_functions import Arm, Score, Sites, judged_by, layout
from research.runner.paired_statistics import DECIMALS, mann_whitney_less
from research.runner.score_kinds import UnitMean
from research.runner.score_table import patients_of, selected
from research.runner.site_columns import CAPTIONS, SUFFIXES
from research.runner.site_means import places, unit_mean
from research.runner.site_scores import in_columns, mean_and_spread, means_of_units
from research.runner.table_claim import P_COLUMN, ClaimFinding, Evidence
from research.runner.table_layout import ShownArm, ShownTable
from research.runner.words_of_tables import csv_bytes, markdown_table, mean_cell, seeds_phrase, signed

FALLS_RULE = """\
**Falls elsewhere.** **✓**: the mean is higher at the first sites than at the others in every seed, and p < 0.05: Mann
and Whitney's test over patients, two-sided (twice the smaller of the two one-sided p), each one's scores averaged over
the seeds first; Holm-adjusted over all comparisons of this table. **✗**: as clearly the other way round. Other patients
are no pairs: the operations of one site may be harder in themselves.
"""
FILES = (("table", "md"), ("table", "csv"), ("figure", "png"))


@judged_by(FALLS_RULE)
def falls_elsewhere(evidence: Evidence, arm: Arm, home: Sites, away: Sites, score: Score = None) -> list[ClaimFinding]:
    """The arm's score of the last round's model is higher at the ``home`` sites than at the ``away`` ones.

    Each patient's score is averaged over seeds and cases first; the difference is that of the means over patients.
    """
    at_home, elsewhere = (_patients(evidence, arm, sites, score) for sites in (home, away))
    if at_home is None or elsewhere is None:
        return []
    x, y = at_home.mean().to_numpy(), elsewhere.mean().to_numpy()  # over seeds
    p_less, _ = mann_whitney_less(x, y)
    p_more, effect = mann_whitney_less(y, x)
    difference = float(np.round(x.mean() - y.mean(), DECIMALS))
    seeds = tuple(float(d) for d in np.round(at_home.mean(axis=1) - elsewhere.mean(axis=1), DECIMALS))
    cells = {"arm": arm, "higher at": ", ".join(home), "than at": ", ".join(away)}
    cells |= {"patients": f"{len(x)} and {len(y)}", "difference": signed(difference, 3), P_COLUMN: ""}
    cells |= {"effect": signed(effect, 2)}
    p = min(1.0, 2 * min(p_less, p_more))
    record = {"arm": arm, "home": cells["higher at"], "away": cells["than at"], "difference": difference}
    record |= {"p": p, "effect": effect}
    return [ClaimFinding("Falls elsewhere", tuple(cells.items()), seeds, tuple(record.items()), p, effect)]


def _patients(evidence: Evidence, arm: str, names: Collection[str], score: str | None) -> pd.DataFrame | None:
    """A row a seed, a column a patient of one of the sites; None where one has no score."""
    kind = evidence.kinds[score or next(iter(evidence.kinds))]
    if not isinstance(kind, UnitMean):
        raise DataError(f"'{kind.label}' is not a score of single cases; a claim of this kind needs one")
    parts = []
    for site in (evidence.sites[name] for name in names):
        at = {"arm": arm, "site": site, "list": "test", "model": "last", "metric": kind.metric}
        rows = selected(evidence.frame, **at)
        if rows.empty:
            return None
        owned = rows.assign(owner=site + "/" + patients_of(rows))
        parts.append(owned.pivot_table(index="seed", columns="owner", values="value"))
    return pd.concat(parts, axis=1)


def _check_grid(
    arms: Sequence[ShownArm], scores: Collection[str], x_label: str, sites: list[str], score: str | None
) -> None:
    cells = [(arm.group, arm.x) for arm in arms]
    if None in [x for _, x in cells] or len(set(cells)) < len(cells):
        raise JobError("each arm of a grid needs an x and a group, and no two the same ones")


@layout(*(f"{name}{suffix}.{end}" for suffix in SUFFIXES.values() for name, end in FILES), check=_check_grid)
def setting_grid(shown: ShownTable, x_label: str, sites: list[str], score: str | None = None) -> dict[str, bytes]:
    """A grid of two settings, the arm's ``group`` by its ``x``: the mean score over sites, of each of which it counts
    the same; a table and a heat map.

    Args:
        shown: the table.
        x_label: what the arms' ``x`` is.
        sites: over which the mean is, as the table names them.
        score: which of the table's; None = the first.
    """
    kind = unit_mean(shown, score)
    _, means = places(shown, [], {"": sites})
    contents: dict[str, bytes] = {}
    for model, suffix in SUFFIXES.items():
        rows = _cells(shown.arms, in_columns(means_of_units(shown.evidence.frame, kind, model), [], means)[""])
        if rows.empty:
            continue
        words = f"{kind.label}, {CAPTIONS[model].format(label=kind.label)}, mean of {', '.join(means[''])}; "
        words += seeds_phrase(rows["n_seeds"])
        contents[f"table{suffix}.md"] = _grid_table(shown.title, words, x_label, rows).encode()
        contents[f"table{suffix}.csv"] = csv_bytes(rows)
        with style():
            contents[f"figure{suffix}.png"] = png(_grid_figure(shown.title, words, x_label, rows))
    return contents


def _cells(arms: Sequence[ShownArm], values: pd.Series) -> pd.DataFrame:
    rows = []
    for arm in arms:
        scores = values[values.index.get_level_values("arm") == arm.name]
        if len(scores):
            mean, std = mean_and_spread(scores)
            rows.append(
                {"group": arm.group, "x": arm.x, "arm": arm.name, "n_seeds": len(scores), "mean": mean, "std": std}
            )
    return pd.DataFrame(rows)


def _grid_table(title: str, words: str, x_label: str, rows: pd.DataFrame) -> str:
    best = f"{rows['mean'].max():.3f}"
    shown = rows[["group", "x", "mean", "std"]].itertuples(index=False)
    cells = {(g, x): mean_cell(mean, std, best) for g, x, mean, std in shown}
    groups, xs = dict.fromkeys(rows["group"]), sorted(set(rows["x"]))
    lines = [[g, *(cells.get((g, x), NOTHING) for x in xs)] for g in groups]
    table = markdown_table([x_label, *(f"{x:g}" for x in xs)], lines, "|---" + "|--:" * len(xs) + "|")
    return "\n".join([f"# {title}", "", f"{words}.", "", *table, ""])


def _grid_figure(title: str, words: str, x_label: str, rows: pd.DataFrame) -> Figure:
    wide = rows.pivot(index="group", columns="x", values="mean").reindex(list(dict.fromkeys(rows["group"])))
    figure = Figure(figsize=(6.4, 1.6 + 0.5 * len(wide)), layout="constrained")
    axes = figure.subplots()
    values = wide.to_numpy()
    texts = [[NOTHING if pd.isna(value) else f"{value:.2f}" for value in row] for row in values]
    draw_cells(axes, texts, values, values == rows["mean"].max())
    axes.set_xticks(range(wide.shape[1]), [f"{x:g}" for x in wide.columns])
    axes.set_yticks(range(len(wide)), list(wide.index), color=INK)
    axes.set_xlabel(x_label)
    heading(figure, title, words)
    return figure
