"""F1 of several labels of every arm, at each site and of all sites' frames together, from counts of frames.

What sites sent is what scores are made of, and counts add up: no prediction is pooled. Counts of single videos, which
stay where they are, only say how much the scores move without one of them.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedmed.errors import DataError
from fedmed.training.jackknife import leave_one_out
from fedmed.training.label_counts import COUNTED, LabelCounts
from fedmed.training.metrics import f1_scores
from research.runner.score_kinds import Floats
from research.runner.score_table import ROUNDS, SENT, part_of, patients_of, selected, without

if TYPE_CHECKING:  # whose evidence this is a part of
    from research.runner.table_layout import ShownArm

ALTRUISTIC, EGOISTIC = "ALTV", "EGOV"  # each site's own model on the frames of all sites, and on its own
VIEWS = (ALTRUISTIC, EGOISTIC)
FIRST = f"{COUNTED[0]}_"  # before the name of a label
Numbers = dict[tuple[str, int, str], dict[str, float]]  # (arm, seed, site) -> name -> number


class LabelScores:
    """Scores of the models of the last round.

    A row of a table is an arm, or one of the two views of the arm whose sites each have a model that they trained
    alone. Of an arm that leaves out each site in turn, a site is scored with the model of the others. Values of a row
    are (S, K, J): seeds, sites and labels.

    Args:
        frame: the table of scores.
        arms: of the table; those of a variant are compared with one another.
        sites: the table's names of sites -> those in the scores.
    """

    def __init__(self, frame: pd.DataFrame, arms: "Sequence[ShownArm]", sites: Mapping[str, str]) -> None:
        self.sites, self._sites = list(sites), list(sites.values())
        self._rounds = selected(frame, list=ROUNDS)
        self._sent, self._videos = selected(frame, list=SENT, model="last"), selected(frame, list="test", model="last")
        metrics = [name for name in self._sent["metric"].unique() if name.startswith(FIRST)]
        self.labels = [name.removeprefix(FIRST) for name in metrics]
        there = set(self._sent["arm"].unique())
        self._models: dict[tuple[str, str], list[str]] = {}
        for arm in arms:
            local, others = ([part_of(arm.name, to(site)) for site in self._sites] for to in (str, without))
            if there.intersection(local):
                self._models |= {(view, arm.variant): local for view in VIEWS}
            elif there.intersection(others):
                self._models[arm.row, arm.variant] = others
            elif arm.name in there:
                self._models[arm.row, arm.variant] = [arm.name] * len(self._sites)
        self.variants = list(dict.fromkeys(variant for _, variant in self._models))
        self._left_out: dict[tuple[str, str], Floats] = {}

    def rows(self, variant: str) -> list[str]:
        """Rows of a variant, in the order of the arms."""
        return [row for row, name in self._models if name == variant]

    def have(self, rows: Sequence[str]) -> bool:
        """Tell whether every variant, and there is one, has all the rows."""
        return bool(self.variants) and all((row, name) in self._models for row in rows for name in self.variants)

    def models(self, row: str, variant: str) -> list[str]:
        """The arm whose model each site is scored with, (K,)."""
        return self._models[row, variant]

    @cached_property
    def seeds(self) -> list[int]:
        return sorted(int(seed) for seed in self._sent["seed"].unique())

    @cached_property
    def numbers(self) -> Numbers:
        """Numbers that each site sent of its test."""
        return _by_site(self._sent)

    def place(self, site: str) -> str:
        """The name in the scores of a site of the table."""
        return self._sites[self.sites.index(site)]

    def counts(self, arm: str, seed: int, site: str) -> LabelCounts | None:
        """Of all test frames of a site, as the table names it; None where the site did not send all of them."""
        return LabelCounts.from_numbers(self.numbers.get((arm, seed, self.place(site)), {}), self.labels)

    def without_counts(self, arm: str) -> list[str]:
        """Sites that keep their counts, or were not scored: without them there is no score of all frames."""
        return [site for site in self.sites if any(self.counts(arm, seed, site) is None for seed in self.seeds)]

    def total(self, arm: str, seed: int) -> LabelCounts | None:
        """Of all sites; None where one is missing."""
        known = [counts for site in self.sites if (counts := self.counts(arm, seed, site)) is not None]
        return sum(known, LabelCounts.none(len(self.labels))) if len(known) == len(self.sites) else None

    def values(self, row: str, variant: str, absent: str = "zero") -> Floats:
        """F1 (S, K, J) of the model of each site, on its own frames, or of the altruistic view on those of all.

        NaN where counts are missing and, if ``absent`` is ``skip``, of a label that is neither there nor called.
        """
        models, everywhere = self._models[row, variant], row == ALTRUISTIC
        counted = [
            [
                self.total(arm, seed) if everywhere else self.counts(arm, seed, site)
                for arm, site in zip(models, self.sites, strict=True)
            ]
            for seed in self.seeds
        ]
        return np.stack([[self._f1(counts, absent) for counts in of_seed] for of_seed in counted])

    def overall(self, row: str, variant: str, personal: bool, absent: str = "zero") -> Floats:
        """F1 (S, J) of all frames together; of models that differ by site, the mean over sites weighted by images."""
        if personal or row in VIEWS:
            return np.asarray((self.values(row, variant, absent) * self.shares[:, None]).sum(1))
        arm = self._models[row, variant][0]
        return np.stack([self._f1(self.total(arm, seed), absent) for seed in self.seeds])

    @cached_property
    def shares(self) -> Floats:
        """Each site's share of the training images, (K,); NaN where a site did not say."""
        images = selected(self._rounds, metric="images")
        known = images.drop_duplicates("site").set_index("site")["value"]
        counts = known.reindex(self._sites).to_numpy(float)
        return np.asarray(np.where(counts > 0, counts, np.nan) / counts.sum())

    def rounds(self, row: str, variant: str, metric: str) -> Floats:
        """A number that the rounds recorded of each site, (S, T, K), of pooled data (S, T, 1); NaN where it was not."""
        models = set(self._models[row, variant])
        rounds = self._rounds[(self._rounds["metric"] == metric) & self._rounds["arm"].isin(models)]
        rounds = rounds.astype({"unit": str, "site": str}).astype({"unit": int})
        sites = self._sites if rounds["site"].isin(self._sites).any() else rounds["site"].unique()
        table = {seed: one.pivot(index="unit", columns="site", values="value") for seed, one in rounds.groupby("seed")}
        length, empty = 1 + int(rounds["unit"].max()) if len(rounds) else 0, pd.DataFrame()
        wide = [table.get(seed, empty).reindex(index=range(length), columns=sites) for seed in self.seeds]
        return np.stack([part.to_numpy(float) for part in wide])

    def left_out(self, row: str, variant: str) -> Floats:
        """F1 of all labels and sites, (S, 1 + N): of all videos, then without those of each of N patients.

        The videos of a patient are left out together, from all that the table has of them.
        """
        key = row, variant
        if key not in self._left_out:
            models = self._models[key]
            self._left_out[key] = np.stack([self._without_each(models, row, seed) for seed in self.seeds])
        return self._left_out[key]

    @cached_property
    def strata(self) -> np.ndarray:
        """The place of the site of each patient of :meth:`left_out`, (N,)."""
        return np.repeat(range(len(self._sites)), [len(self._patients.get(site, [])) for site in self._sites])

    @cached_property
    def _patients(self) -> dict[str, np.ndarray]:
        """Site -> its patients, by name."""
        return {site: np.unique(owners) for (_, _, site), (_, owners) in self._tables.items()}

    def _without_each(self, models: Sequence[str], row: str, seed: int) -> Floats:
        means = []
        for place, arm in enumerate(models):
            at = range(len(self._sites)) if row == ALTRUISTIC else [place]
            counts = sum(self._counts_without(arm, seed, site) for site in at)
            tp, fp, fn = np.split(np.asarray(counts), len(COUNTED), axis=1)
            means.append(f1_scores(tp, fp, fn).mean(1))
        return np.asarray(np.mean(means, axis=0))

    def _counts_without(self, arm: str, seed: int, place: int) -> Floats:
        """Counts of a site, (1 + N, 3 J): of all its videos where the patient who is left out is of another site."""
        site = self._sites[place]
        if (arm, seed, site) not in self._tables:
            raise DataError(f"{arm}, seed {seed}: no counts of the videos of '{site}'; let it send 'n_cases'")
        table, owners = self._tables[arm, seed, site]
        if not np.array_equal(np.unique(owners), self._patients[site]):
            raise DataError(f"{arm}, seed {seed}: videos of other patients of '{site}'; test all on one list")
        means_of_site = leave_one_out(lambda weights: weights @ table, owners)
        means = np.repeat(means_of_site[:1], 1 + len(self.strata), axis=0)
        means[1:][self.strata == place] = means_of_site[1:]
        return means

    @cached_property
    def _tables(self) -> dict[tuple[str, int, str], tuple[Floats, np.ndarray]]:
        """(arm, seed, site) -> counts of its videos, (n, 3 J), and whose each is, (n,)."""
        names = [f"{count}_{label}" for count in COUNTED for label in self.labels]
        keys = ["arm", "seed", "site"]
        text = dict.fromkeys(["arm", "site", "unit", "metric", "patient"], str)
        videos = self._videos[self._videos["metric"].isin(names)].astype(text)
        wide = videos.drop_duplicates([*keys, "unit", "metric"]).pivot(
            index=[*keys, "unit"], columns="metric", values="value"
        )
        once = videos.drop_duplicates([*keys, "unit"])
        owners = patients_of(once).set_axis(pd.MultiIndex.from_frame(once[[*keys, "unit"]]))[wide.index].to_numpy()
        counts = wide.reindex(columns=names).to_numpy(float)
        rows = wide.groupby(level=keys).indices
        return {(arm, int(seed), site): (counts[at], owners[at]) for (arm, seed, site), at in rows.items()}

    def _f1(self, counts: LabelCounts | None, absent: str) -> Floats:
        return np.full(len(self.labels), np.nan) if counts is None else counts.f1(absent)


def _by_site(frame: pd.DataFrame) -> Numbers:
    numbers: Numbers = {}
    keys = (frame[name].to_numpy() for name in ("arm", "seed", "site", "metric", "value"))
    for arm, seed, site, metric, value in zip(*keys, strict=True):
        numbers.setdefault((arm, int(seed), site), {})[metric] = float(value)
    return numbers
