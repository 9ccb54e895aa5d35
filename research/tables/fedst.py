"""Tables of FedST (Fang 2025): who gains most, a number over the rounds, and what an arm costs."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from fedmed.reports.curves import end_labels
from fedmed.reports.palette import LIGHT
from fedmed.reports.plots import WIDTH, png, style
from fedmed.reports.words import NOTHING, fixed
from research.runner.arm_figures import heading
from research.runner.case_claims import CasePair, case_kind
from research.runner.from_functions import Arm, Score, judged_by, layout
from research.runner.paired_statistics import DECIMALS
from research.runner.score_table import ROUNDS, SERVER, SPEED, selected
from research.runner.site_scores import mean_and_spread, means_of_units
from research.runner.table_claim import ClaimFinding, Evidence, Verdict
from research.runner.table_layout import ShownArm, ShownTable
from research.runner.words_of_tables import csv_bytes, markdown_table, seeds_phrase, signed

MEGABYTE, IMAGES = 1e6, "images"
COSTS = {
    "bytes_up": "MB up, a site and round",
    "bytes_down": "MB down, a site and round",
    "seconds": "seconds a round",
    "server_seconds": "of them at the server",
    "frames_per_second": "frames/s",
}
WEAKEST_RULE = """\
**Weakest gain most.** **✓**: in every seed the mean gain of the weakest sites is above that of the others. **✗**: in
none. **n.s.**: neither. It is no test: the sites are few.
"""
Two = Annotated[list[str], Field(min_length=2), "site"]


def _some_are_left(arm: str, over: str, sites: list[str], weakest: int, score: str | None) -> None:
    if weakest >= len(sites):
        raise ValueError(f"'weakest' is {weakest} of {len(sites)} sites; some must be left to compare with")
    if arm == over:
        raise ValueError(f"'{arm}' is compared with itself; name two arms")


@judged_by(WEAKEST_RULE, check=_some_are_left)
def weakest_gain_most(
    evidence: Evidence, arm: Arm, over: Arm, sites: Two, weakest: Annotated[int, Field(ge=1)], score: Score = None
) -> list[ClaimFinding]:
    """The sites where ``over`` is weakest gain more by ``arm``, in the mean, than the others do.

    The model of the last round; each site's score is the mean over the units of its test list, and the weakest sites,
    so many of them, are told by the mean over all seeds. A site that is weak by chance in some seeds gains there by
    chance too, so half of a gain of this kind can be nothing but regression to the mean; the claim is about many seeds.
    """
    kind = case_kind(evidence, CasePair(better=arm, worse=over, sites=sites, score=score))
    before, after = (_by_site(evidence, kind, one, sites) for one in (over, arm))
    if before is None or after is None:
        return []
    gains = (after - before).dropna()
    weak = list(before.mean().sort_values(kind="stable").index[:weakest])
    apart = np.round(gains[weak].mean(axis=1) - gains.drop(columns=weak).mean(axis=1), DECIMALS)
    shown = {site: signed(float(gains[site].mean()), 3) for site in gains}
    cells = {"arm": arm, "over": over, "weakest": ", ".join(weak)}
    cells |= {"gains": ", ".join(f"{site} {gain}" for site, gain in shown.items())}
    cells |= {"weakest more than others": signed(float(apart.mean()), 3)}
    seeds = tuple(float(value) for value in apart)
    record: dict[str, Any] = {"better": arm, "worse": over, "difference": float(apart.mean()), "p": None}
    return [ClaimFinding("Who gains", tuple(cells.items()), seeds, tuple(record.items()), verdict=_verdict(seeds))]


def _by_site(evidence: Evidence, kind: Any, arm: str, names: Sequence[str]) -> pd.DataFrame | None:
    """A row a seed, a column a site; None where a site has no score."""
    sites = [evidence.sites[site] for site in names]
    means = means_of_units(selected(evidence.frame, arm=arm), kind, "last").droplevel("arm").unstack("site")
    return means[sites] if set(sites) <= set(means) and means[sites].notna().all(axis=None) else None


def _verdict(seeds: tuple[float, ...]) -> Verdict:
    if all(value > 0 for value in seeds):
        return Verdict.HOLDS
    return Verdict.OPEN if any(value > 0 for value in seeds) else Verdict.CONTRARY


@layout("table.csv", "table.md", "figure.png")
def round_curves(shown: ShownTable, label: str, value: str = "score") -> dict[str, bytes]:
    """A number of the rounds, such as ``score``, the mean validation score of the labelled sites: a line an arm.

    Args:
        shown: the table.
        label: words for the number.
        value: its name in ``rounds.jsonl``.
    """
    rows = of_rounds(shown, value)
    if rows.empty:
        return {}
    curves = rows.groupby(["arm", "round"], sort=True)["value"].agg(["mean", "std", "size"]).reset_index()
    lines = [[arm.name, *_ends(curves[curves["arm"] == arm.name])] for arm in shown.arms]
    table = markdown_table(["arm", "first round", "last round", "highest"], lines, "|---|--:|--:|--:|")
    words = f"{label}; {seeds_phrase(curves['size'])}."
    with style():
        picture = png(_curves(shown, curves, words, "rounds behind the model" if value == "score" else "round"))
    text = "\n".join([f"# {shown.title}", "", words, "", *table, ""])
    return {"table.md": text.encode(), "table.csv": csv_bytes(curves), "figure.png": picture}


def _ends(curve: pd.DataFrame) -> list[str]:
    values = curve["mean"].to_numpy()
    return [f"{value:.3f}" for value in (values[0], values[-1], values.max())] if len(values) else [NOTHING] * 3


def _curves(shown: ShownTable, curves: pd.DataFrame, words: str, below: str) -> Figure:
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    axes, ends = figure.subplots(), []
    for place, arm in enumerate(shown.arms):
        curve = curves[curves["arm"] == arm.name]
        if len(curve):
            colour, spread = LIGHT[place % len(LIGHT)], curve["std"].fillna(0)
            axes.plot(curve["round"], curve["mean"], color=colour, marker="o", markersize=3)
            axes.fill_between(
                curve["round"], curve["mean"] - spread, curve["mean"] + spread, color=colour, alpha=0.15, linewidth=0
            )
            ends.append((float(curve["mean"].iloc[-1]), arm.name, colour))
    axes.set_xlabel(below)
    end_labels(axes, ends)
    heading(figure, shown.title, words)
    return figure


@layout("table.csv", "table.md")
def round_costs(shown: ShownTable) -> dict[str, bytes]:
    """Costs of an arm: megabytes of tensors, seconds, and frames that its model segments in a second.

    Bytes are those of the tensors that a job's rounds noted, of one site in one round; what NVFlare writes beside them,
    and models that are released or only scored, are not among them. Seconds are of this machine and its load. Of an arm
    of several jobs, such as one a site, all of it is of one job.
    """
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


def of_rounds(shown: ShownTable, name: str) -> pd.DataFrame:
    """Columns arm, seed, round, counted from 0, and value, of a number of the rounds."""
    rows = selected(shown.evidence.frame, list=ROUNDS, site=SERVER, metric=name).astype({"arm": str, "unit": str})
    rows = rows[rows["arm"].isin([arm.name for arm in shown.arms])]
    return rows.assign(round=rows["unit"].astype(int))[["arm", "seed", "round", "value"]]


def _costs(shown: ShownTable, arm: ShownArm) -> dict[str, str | float]:
    frame = selected(shown.evidence.frame, arm=arm.name)
    rounds = selected(frame, list=ROUNDS)
    costs: dict[str, str | float] = {}
    for name, head in COSTS.items():
        where = selected(frame, list=SPEED) if name == "frames_per_second" else selected(rounds, site=SERVER)
        values = _by_seed(selected(where, metric=name))
        if len(values):
            unit = MEGABYTE * _sites_of_a_job(rounds, name) if name.startswith("bytes") else 1
            costs[head] = mean_and_spread(values)[0] / unit
    return {"arm": arm.name, **costs} if costs else {}


def _sites_of_a_job(rounds: pd.DataFrame, name: str) -> float:
    """Number of sites that train in one of an arm's jobs: a site has one row of images in it, and one first round."""
    jobs = len(selected(rounds, site=SERVER, unit="0", metric=name))
    return len(selected(rounds, unit="all", metric=IMAGES)) / jobs or 1


def _by_seed(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby("seed")["value"].mean() if len(rows) else pd.Series(dtype=np.float64)
