"""An arm is better at some sites than at others: the test of Mann and Whitney over patients, who are not paired."""

from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from fedmed.errors import DataError
from research.runner.experiment_data import Names
from research.runner.paired_statistics import DECIMALS, mann_whitney_less
from research.runner.score_kinds import UnitMean
from research.runner.score_table import patients_of, selected
from research.runner.table_claim import P_COLUMN, ClaimFinding, Evidence, TableClaim
from research.runner.words_of_tables import signed


class FallsElsewhere(TableClaim):
    """The arm's score of the last round's model is higher at the ``home`` sites than at the ``away`` ones.

    Each patient's score is averaged over seeds and cases first; the difference is that of the means over patients.
    """

    rule: ClassVar[str] = """\
**Falls elsewhere.** **✓**: the mean is higher at the first sites than at the others in every seed, and p < 0.05: Mann
and Whitney's test over patients, two-sided (twice the smaller of the two one-sided p), each one's scores averaged over
the seeds first; Holm-adjusted over all comparisons of this table. **✗**: as clearly the other way round. Other patients
are no pairs: the operations of one site may be harder in themselves.
"""

    arm: str
    home: Names
    away: Names
    score: str | None = None  # None = the table's first

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"arm": [self.arm], "site": [*self.home, *self.away], "score": [self.score] if self.score else []}

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        home, away = (self._scores(evidence, sites) for sites in (self.home, self.away))
        if home is None or away is None:
            return []
        x, y = home.mean().to_numpy(), away.mean().to_numpy()  # over seeds
        p_less, _ = mann_whitney_less(x, y)
        p_more, effect = mann_whitney_less(y, x)
        difference = float(np.round(x.mean() - y.mean(), DECIMALS))
        seeds = tuple(float(d) for d in np.round(home.mean(axis=1) - away.mean(axis=1), DECIMALS))
        cells = {"arm": self.arm, "higher at": ", ".join(self.home), "than at": ", ".join(self.away)}
        cells |= {"patients": f"{len(x)} and {len(y)}", "difference": signed(difference, 3), P_COLUMN: ""}
        cells |= {"effect": signed(effect, 2)}
        p = min(1.0, 2 * min(p_less, p_more))
        record = {"arm": self.arm, "home": cells["higher at"], "away": cells["than at"], "difference": difference}
        record |= {"p": p, "effect": effect}
        return [ClaimFinding("Falls elsewhere", tuple(cells.items()), seeds, tuple(record.items()), p, effect)]

    def _scores(self, evidence: Evidence, sites: Collection[str]) -> pd.DataFrame | None:
        """A row a seed, a column a patient of one of the sites; None where one has no score."""
        kind = evidence.kinds[self.score or next(iter(evidence.kinds))]
        if not isinstance(kind, UnitMean):
            raise DataError(f"'{kind.label}' is not a score of single cases; a claim of this kind needs one")
        found = []
        for site in (evidence.sites[name] for name in sites):
            at = {"arm": self.arm, "site": site, "list": "test", "model": "last", "metric": kind.metric}
            rows = selected(evidence.frame, **at)
            if rows.empty:
                return None
            owned = rows.assign(owner=site + "/" + patients_of(rows))
            found.append(owned.pivot_table(index="seed", columns="owner", values="value"))
        return pd.concat(found, axis=1)
