"""Tables of Markert 2022: what goes with what, which rows are alike, how rounds go; tests and figures beside them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING
from research.runner.experiment_data import Positive
from research.runner.from_functions import Looked, Row, Rows, Sites, about_rounds, about_seeds, layout
from research.runner.label_bars import label_bars
from research.runner.label_claims import compare_labels
from research.runner.label_figures import compared_rows, label_cells, round_lines, score_matrix, site_lines
from research.runner.label_scores import ALTRUISTIC, EGOISTIC, VIEWS, LabelScores
from research.runner.label_tables import check_rows
from research.runner.paired_statistics import holm
from research.runner.round_history import RoundHistory, thirds
from research.runner.score_kinds import Floats
from research.runner.table_claim import ALPHA
from research.runner.table_layout import ShownArm, ShownTable
from research.runner.words_of_tables import cannot_tell, csv_bytes, markdown_table, probability, signed


@about_seeds()
def not_apart(scores: LabelScores, rows: Rows, than: Row) -> Iterable[Looked]:
    """No row differs from ``than``: neither test finds a difference either way, before any adjustment."""
    for row in rows:
        p = [one.p for pair in ((row, than), (than, row)) for one in compare_labels(scores, *pair)]
        known = [value for value in p if value is not None]
        apart, complete = any(value < ALPHA for value in known), len(known) == len(p) > 0
        names = f"p that {row} is above {than}, then below it (Mann–Whitney, jackknife over videos)"
        yield names, ", ".join(map(probability, p)), [not apart] if apart or complete else []


@about_seeds()
def close_together(scores: LabelScores, rows: Rows, within: Positive) -> Iterable[Looked]:
    """The means of the rows over sites and labels are at most so far apart, in the mean over the seeds."""
    for variant in scores.variants:
        means = {row: _mean(scores, row, variant).mean() for row in rows}
        apart = [abs(means[a] - means[b]) for a, b in combinations(rows, 2)]
        words = ", ".join(f"{row} {mean:.3f}" for row, mean in means.items())
        yield variant, f"{words}; at most {max(apart):.3f} apart", [max(apart) <= within]


@about_seeds(ALTRUISTIC, EGOISTIC)
def larger_is_owner(scores: LabelScores) -> Iterable[Looked]:
    """A site's own model is better at home than everywhere, the more so with the last variant: the larger network."""
    gaps = {name: _mean(scores, EGOISTIC, name) - _mean(scores, ALTRUISTIC, name) for name in scores.variants}
    for name, gap in gaps.items():
        yield f"{EGOISTIC} − {ALTRUISTIC}, {name}", _seeds(gap), gap > 0
    first, last = next(iter(gaps.values())), list(gaps.values())[-1]
    yield "how much more with the last network", _seeds(last - first), last > first


@about_seeds(ALTRUISTIC)
def rare_gain_most(scores: LabelScores, rows: Rows) -> Iterable[Looked]:
    """The rarer a label in the test lists, the more a row gains over ``ALTV``: Spearman's ρ over labels is below 0."""
    for row in rows:
        values = [_frequency_correlation(scores, row, seed) for seed in range(len(scores.seeds))]
        yield f"ρ of frequency and gain, {row}", _seeds(np.array(values)), [rho < 0 for rho in values]


@about_seeds()
def gap_stays(scores: LabelScores, rows: Rows, low: Sites, high: Sites) -> Iterable[Looked]:
    """The sites ``low`` are scored below the sites ``high`` with each of the rows, in the mean of each."""
    for variant in scores.variants:
        for row in rows:
            of_sites = dict(zip(scores.sites, scores.values(row, variant).mean(2).T, strict=True))
            below, above = (np.mean([of_sites[site] for site in sites], axis=0) for sites in (low, high))
            yield f"{row}, {variant}", _seeds(above - below), above > below


@about_seeds()
def cosine_tells_nothing(scores: LabelScores, rows: Rows) -> Iterable[Looked]:
    """Over sites, F1 does not go with the mean cosine of the site's updates: Spearman's p is at least 0.05."""
    for row in rows:
        cosines, f1 = [], []
        for variant in scores.variants:
            cosines += np.nanmean(scores.rounds(row, variant, "cosine"), axis=(0, 1)).tolist()
            f1 += scores.values(row, variant).mean((0, 2)).tolist()
        rho, p = _rank_correlation(cosines, f1)
        words = f"ρ {signed(rho, 2)}, p {probability(p)}"
        yield f"{row}, {len(f1)} sites and networks", words, [p >= ALPHA]


@about_rounds
def round_trend(histories: Mapping[int, RoundHistory], value: str, rises: bool = False) -> tuple[str, list[bool]]:
    """A number of the sites' rounds, averaged over them, falls or rises from the first third to the last."""
    parts, findings = [], []
    for seed, history in histories.items():
        if history.reported is None:
            return f"{value} was not measured", []
        first, last = thirds(history.reported.mean(1))
        findings.append(last > first if rises else last < first)
        highest = int(history.reported.mean(1).argmax()) + 1
        parts.append(f"seed {seed}: {first:.3g} → {last:.3g}, highest in round {highest}")
    return f"{value}, first → last third of the rounds, {'; '.join(parts)}", findings


def _check_tests(arms: Sequence[ShownArm], scores: Collection[str], federated: list[str], pooled: str) -> None:
    check_rows("federated", [*federated, pooled], arms)


@layout("table.md", "table.csv", check=_check_tests)
def label_tests(shown: ShownTable, federated: list[str], pooled: str) -> dict[str, bytes]:
    """p of each federated row against models trained alone, everywhere and at home, and pooled data (Table 6.1).

    By both tests of :func:`research.runner.label_claims.compare_labels`, Holm-adjusted over the table's p of each.
    """
    scores = shown.evidence.labels
    pairs = [(row, view) for row in federated for view in VIEWS]
    pairs += [(pooled, row) for row in federated]
    columns = [
        {"row": worse if better == pooled else better, "asked": _question(better, worse, pooled)} | dict(one.record)
        for better, worse in pairs
        if scores.have([better, worse])
        for one in compare_labels(scores, better, worse)
    ]
    if not columns:
        return {}
    table = pd.DataFrame(columns)
    table["p_holm"] = table.groupby("test")["p"].transform(_adjusted)
    both, too_few = zip(table["p"], table["p_holm"], strict=True), cannot_tell(len(scores.strata), "video")
    cells = table.assign(
        cell=[too_few if pd.isna(p) else f"{probability(p)} ({probability(holm_p)})" for p, holm_p in both]
    )
    lines = [f"# {shown.title}", "", "One-sided p (Holm-adjusted over the table).", ""]
    for test, part in cells.groupby("test", sort=False):
        wide = part.pivot(index="row", columns="asked", values="cell")
        wide = wide.reindex(index=part["row"].unique(), columns=part["asked"].unique()).fillna(NOTHING)
        rows = [[str(name), *map(str, of_row)] for name, of_row in zip(wide.index, wide.to_numpy(), strict=True)]
        lines += [f"## {test}", "", *markdown_table(["arm", *wide.columns], rows), ""]
    return {"table.md": "\n".join(lines).encode(), "table.csv": csv_bytes(table)}


def _check_figures(
    arms: Sequence[ShownArm],
    scores: Collection[str],
    rounds: dict[str, str],
    followed: str,
    compared: list[str],
    bars: list[str],
    personal: list[str],
) -> None:
    check_rows("followed", [followed], arms)
    check_rows("compared", [*compared, *personal], arms)
    check_rows("bars", [row for row in bars if row not in VIEWS], arms)


FIGURES = ("rounds", "cosines", "compared", "matrix_skip", "labels", "bars")


@layout(*(f"{name}.png" for name in FIGURES), check=_check_figures)
def label_figures(
    shown: ShownTable,
    rounds: dict[str, str],
    followed: str,
    compared: list[str] = [],  # noqa: B006 - a default of a YAML's key, never changed
    bars: list[str] = [],  # noqa: B006
    personal: list[str] = [],  # noqa: B006
) -> dict[str, bytes]:
    """Figures of the rounds and of single labels, without a table (Fig. 6.3 to 6.6, A.2 to A.4).

    Args:
        shown: the table.
        rounds: metric of the rounds -> its words; the scores, losses and geometry of updates.
        followed: row whose sites' cosines are drawn.
        compared: rows to draw side by side, such as weighted and unweighted means.
        bars: rows to draw label by label at each site, with ALTV and EGOV for models of one site.
        personal: rows whose sites have models of their own.
    """
    scores, title = shown.evidence.labels, shown.title
    rows = list(dict.fromkeys(row for name in scores.variants for row in scores.rows(name)))
    everywhere = [row for row in rows if scores.have([row])]
    lines = [row for row in rows if row != ALTRUISTIC]
    figures: dict[str, Callable[[], Figure]] = {}
    figures |= {"rounds.png": lambda: round_lines(title, scores, lines, rounds)} if rows else {}
    if scores.have([followed]):
        figures["cosines.png"] = lambda: site_lines(title, scores, followed, "cosine", "Cosine to the mean")
    if compared and scores.have(compared):
        figures["compared.png"] = lambda: compared_rows(title, scores, compared)
    if bars and scores.have(bars):
        figures["bars.png"] = lambda: label_bars(title, scores, bars)
    if everywhere:
        figures["matrix_skip.png"] = lambda: score_matrix(title, scores, personal, "skip")
        figures["labels.png"] = lambda: label_cells(title, scores, everywhere)
    with style():
        return {name: png(draw()) for name, draw in figures.items()}


def _adjusted(p: pd.Series) -> pd.Series:
    """By Holm, of those that there are."""
    known = p.dropna()
    return pd.Series(holm(known.tolist()), known.index).reindex(p.index)


def _question(better: str, worse: str, pooled: str) -> str:
    return f"{worse} < arm" if better != pooled else f"arm < {pooled}"


def _mean(scores: LabelScores, row: str, variant: str) -> Floats:
    """(S,)."""
    return np.asarray(scores.values(row, variant).mean((1, 2)))


def _frequency_correlation(scores: LabelScores, row: str, seed: int) -> float:
    gains, shown = [], []
    for variant in scores.variants:
        total = scores.total(scores.models(row, variant)[0], scores.seeds[seed])
        shown.append(np.zeros(len(scores.labels)) if total is None else total.tp + total.fn)
        gains.append((scores.values(row, variant) - scores.values(ALTRUISTIC, variant))[seed].mean(0))
    return _rank_correlation(np.mean(shown, axis=0), np.mean(gains, axis=0))[0]


def _rank_correlation(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> tuple[float, float]:
    """Spearman's ρ and its p; 0 and 1 where one of the two does not vary."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0, 1.0
    correlation = spearmanr(x, y)
    return float(correlation.statistic), float(correlation.pvalue)


def _seeds(values: Floats) -> str:
    return ", ".join(signed(float(value), 3) for value in values)
