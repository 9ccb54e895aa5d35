"""One arm is better than another at a site, case by case: Wilcoxon's test over the units of a test list."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedmed.errors import DataError
from fedmed.reports.words import NOTHING
from research.runner.paired_statistics import DECIMALS, least_p, rank_biserial, wilcoxon_signed_rank
from research.runner.score_kinds import UnitMean
from research.runner.score_table import MEAN_UNIT, patients_of, selected
from research.runner.table_claim import ALPHA, P_COLUMN, ArmPair, BetterClaim, ClaimFinding, Evidence, signs
from research.runner.words_of_tables import cannot_tell, signed

list_of = list  # where a field has that name
SEEDS_FOR_P = 5  # fewer seeds have no p over seeds
SEEDS_FOR_VERDICT = 6  # with fewer, no two-sided p over seeds can be below 0.05: that of five is 2/32 at least


class CasePair(ArmPair):
    """The arm ``better`` is above the arm ``worse`` at each of the sites, or over the cases of all of them together."""

    sites: Annotated[list[str], Field(min_length=1)]  # as the table names them
    list: Literal["test", "valid"] = "test"  # ``test``, or ``valid``, of which a run has one mean
    model: Literal["last", "selected"] = "last"  # of the ``last`` round, or the one that labelled sites ``selected``
    score: str | None = None  # None = the table's first
    together: bool = False  # one test over the cases of all sites: those of one site may be too few for any

    @property
    def tests(self) -> list_of[list_of[str]]:
        """The sites of each test."""
        return [self.sites] if self.together else [[site] for site in self.sites]


class BetterByCases(BetterClaim):
    """One arm is better than another, at every site and in every comparison that is named."""

    rule: ClassVar[str] = """\
- **✓**: every comparison has the claimed sign in the mean and in every seed, and p < 0.05 in that direction.
- **✗**: at least one comparison is as clearly the other way round: the sign in every seed, and p < 0.05.
- **direction**: the claimed sign in every seed, but some comparison is of validation means, of which a run has only
  one, and with fewer than 6 seeds no test can tell them from chance.
- **n.s.**: neither. The table does not decide. "N patients cannot tell": of so few, whatever their scores, no p is
  below 0.05.
- **not run**: an arm has no scores at a site: it was not run, or has no decoder that the site could be scored with.

p: two-sided Wilcoxon signed-rank test over the {unit}s of the test list, each {unit}'s {label} averaged \
over the seeds first,
and over the {unit}s of a patient where one has several: the unit of the test is the patient. It is
Holm-adjusted over all comparisons of this table. For validation means it is over the seeds. \
It speaks of other {unit}s
from the same sites; what another training run would change is seen in the seeds alone. Effect: matched-pairs
rank-biserial correlation, −1 to 1. Seeds: those whose mean difference has the claimed sign.
"""

    holds: Annotated[list[CasePair], Field(min_length=1)]

    def uses(self) -> Mapping[str, Collection[str]]:
        sites = [site for pair in self.holds for site in pair.sites]
        return {**super().uses(), "site": sites, "score": [pair.score for pair in self.holds if pair.score]}

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        wanted = [(pair, [evidence.sites[site] for site in tested]) for pair in self.holds for tested in pair.tests]
        pairs = [case_scores(evidence, pair, *sites) for pair, sites in wanted]
        if any(high.empty or low.empty for high, low in pairs):
            return []
        return [
            compare_cases(*sides, pair, ", ".join(sites), case_kind(evidence, pair).label)
            for (pair, sites), sides in zip(wanted, pairs, strict=True)
        ]


def case_kind(evidence: Evidence, pair: CasePair) -> UnitMean:
    """The pair's score; a DataError if single cases have none of it."""
    kind = evidence.kinds[pair.score or next(iter(evidence.kinds))]
    if not isinstance(kind, UnitMean):
        raise DataError(f"'{kind.label}' is not a score of single cases; compare it by BetterByPatients")
    return kind


def case_scores(evidence: Evidence, pair: CasePair, *sites: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the score table of the better arm and of the worse; none of an arm that lacks a site."""
    at = {"list": pair.list, "model": pair.model, "metric": case_kind(evidence, pair).metric}
    parts = [selected(evidence.frame, site=site, **at).astype({"unit": str}) for site in sites]
    if len(sites) > 1:  # sites may name their cases alike
        parts = [rows.assign(unit=site + "/" + rows["unit"]) for site, rows in zip(sites, parts, strict=True)]
    high, low = ([selected(rows, arm=arm) for rows in parts] for arm in (pair.better, pair.worse))
    none = pd.DataFrame(columns=evidence.frame.columns)
    return tuple(none if any(one.empty for one in side) else pd.concat(side) for side in (high, low))


def compare_cases(high: pd.DataFrame, low: pd.DataFrame, pair: CasePair, site: str, label: str) -> ClaimFinding:
    """Compare two arms at a site over the same cases and seeds.

    The p is two-sided: Wilcoxon over patients, each one's score averaged over the cases and seeds first, so that
    neither multiply patients. A case that does not say whose it is counts as a patient. Of an arm of several models,
    such as one of each site alone, a case has the mean of their scores. Of a list of means the p is
    that over the seeds, where these are enough for a verdict. The effect is the matched-pairs rank-biserial
    correlation over patients (of means: over seeds), -1..1.

    Args:
        high, low: rows of the score table of the arm that is claimed to be better, and of the other.
        pair, site: which.
        label: what a person reads for the score.

    Raises:
        DataError: the arms or an arm's seeds have different cases; names the first one.
    """
    a, b = (_of_seeds(scores, site) for scores in (high, low))
    _check_pairs(a, b, pair, site)
    cases, n_cases = list(a.columns) != [MEAN_UNIT], len(a.columns)
    if cases and "patient" in high:
        owners = patients_of(high.drop_duplicates("unit").set_index("unit", drop=False))
        a, b = (scores.T.groupby(owners).mean().T for scores in (a, b))
    x, y = a.to_numpy(), b.to_numpy()
    over_cases, over_seeds = (x.mean(0), y.mean(0)), (x.mean(1), y.mean(1))
    difference = float(np.round((x - y).mean(), DECIMALS))
    seeds = tuple(float(d) for d in np.round((x - y).mean(1), DECIMALS))
    p_seeds = wilcoxon_signed_rank(*over_seeds) if len(seeds) >= SEEDS_FOR_P else None
    p_means = p_seeds if len(seeds) >= SEEDS_FOR_VERDICT else None
    p = wilcoxon_signed_rank(*over_cases) if cases else p_means
    effect = rank_biserial(*(over_cases if cases else over_seeds))
    cells = {
        "claimed better": pair.better,
        "than": pair.worse,
        "site": site,
        label: f"{pair.list}, {pair.model}",
        "cases": str(n_cases) if cases else NOTHING,
        **({"patients": str(len(a.columns))} if len(a.columns) < n_cases else {}),
        "difference": signed(difference, 3),
        P_COLUMN: "",
        "effect": signed(effect, 2),
    }
    record: dict[str, Any] = {"better": pair.better, "worse": pair.worse, "site": site}
    record |= {"list": pair.list, "model": pair.model, "difference": difference, "n_cases": n_cases}
    record |= {"n_patients": len(a.columns)} if len(a.columns) < n_cases else {}
    record |= {**signs(seeds), "p": p, "p_seeds": p_seeds, "effect": effect}
    few = cases and least_p(len(a.columns)) >= ALPHA
    # Ranks and mean can disagree about the direction; then the test does not speak for the mean.
    return ClaimFinding(
        "Comparisons",
        tuple(cells.items()),
        seeds,
        tuple(record.items()),
        p,
        effect,
        too_few=cannot_tell(len(a.columns), "patient") if few else "",
    )


def _of_seeds(rows: pd.DataFrame, site: str) -> pd.DataFrame:
    """Score of every seed and case, the mean over the models of an arm that has several."""
    scores = rows.groupby(["seed", "unit"], observed=True)["value"]
    if scores.size().nunique() > 1:
        often = scores.size().idxmax()[1]
        raise DataError(f"site '{site}': case '{often}' has more scores than others; give each case one name")
    return scores.mean().unstack().sort_index(axis=1)


def _check_pairs(high: pd.DataFrame, low: pd.DataFrame, pair: CasePair, site: str) -> None:
    """Both arms have the same seeds, and the same cases in every one of them."""
    if unpaired := sorted(set(high.index) ^ set(low.index)):
        arm = pair.worse if unpaired[0] in high.index else pair.better
        raise DataError(f"arm '{arm}' has no scores of seed {unpaired[0]} at site '{site}'; run it with the same seeds")
    cases = sorted({*high.columns, *low.columns})
    for arm, scores in ((pair.better, high), (pair.worse, low)):
        missing = scores.reindex(columns=cases).isna().stack()
        if missing.any():
            seed, case = missing.idxmax()
            raise DataError(
                f"arm '{arm}', site '{site}', seed {seed} lacks case '{case}', which another run has; run both on the "
                "same test list"
            )
