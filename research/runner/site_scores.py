"""Scores of each site's test list: means over its videos, and of all its frames together."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedmed.training.label_counts import Confusion
from research.runner.score_kinds import UnitMean
from research.runner.score_table import SENT, selected

KEYS = ["arm", "site", "seed"]
COUNT = "frames_"  # what the name of a count begins with: frames_<phase>><phase>


def means_of_units(frame: pd.DataFrame, kind: UnitMean, model: str) -> pd.Series:
    """(arm, site, seed) -> mean over the units of the test list."""
    rows = units(frame, kind, model)
    return rows.groupby(KEYS)["value"].mean()


def units(frame: pd.DataFrame, kind: UnitMean, model: str) -> pd.DataFrame:
    """Rows of the score table of single units of test lists."""
    rows = selected(frame, list="test", model=model, metric=kind.metric)
    return rows.astype({"arm": str, "site": str, "unit": str})


def pooled_f1(frame: pd.DataFrame, model: str) -> pd.Series:
    """(arm, site, seed) -> F1 of all frames of the site's test list, from the counts that it sent.

    Counts of several turns of a site are added up. A site that keeps its counts has no score.
    """
    sent = selected(frame, list=SENT, model=model).astype({"arm": str, "site": str, "metric": str})
    sent = sent[sent["metric"].str.startswith(COUNT)]
    scores: dict[tuple[str, str, int], float] = {}
    for key, rows in sent.groupby(KEYS):
        counts = rows.groupby("metric", sort=False)["value"].sum()
        phases = list(dict.fromkeys(name.removeprefix(COUNT).split(">")[0] for name in counts.index))
        confusion = Confusion.from_numbers(counts.to_dict(), phases)
        if confusion is not None:
            scores[key] = confusion.scores()["f1"]
    index = pd.MultiIndex.from_tuples(scores, names=KEYS) if scores else pd.MultiIndex.from_arrays([[]] * 3, names=KEYS)
    return pd.Series(list(scores.values()), index, dtype=float)


def in_columns(values: pd.Series, sites: Sequence[str], means: Mapping[str, Sequence[str]]) -> dict[str, pd.Series]:
    """Column -> values (arm, seed): each site, and means of several in which each site counts the same.

    A seed of an arm without a score at one of several sites has no mean of them.
    """
    wide = values.unstack("site").reindex(columns=list(dict.fromkeys([*sites, *sum(map(list, means.values()), [])])))
    columns = {site: wide[site].dropna() for site in sites}
    return columns | {name: wide[list(members)].mean(axis=1, skipna=False).dropna() for name, members in means.items()}


def mean_and_spread(values: pd.Series) -> tuple[float, float]:
    """Mean and standard deviation over seeds; NaN for that of one seed."""
    numbers = values.to_numpy()
    return float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else np.nan
