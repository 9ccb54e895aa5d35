"""One row of a table is above another over all labels and sites: by Mann–Whitney, and by a bootstrap over videos."""

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedmed.experiments.label_scores import VIEWS, LabelScores
from fedmed.experiments.paired_statistics import DECIMALS, mann_whitney_less
from fedmed.experiments.score_kinds import interval
from fedmed.experiments.table_claim import P_COLUMN, ArmPair, BetterClaim, ClaimFinding, Evidence, signs
from fedmed.experiments.words_of_tables import probability, signed

LABEL_RULE = """\
- **✓**: every test has the claimed sign in the mean and in every seed, and p < 0.05.
- **n.s.**: not so. **reported**: numbers only. **not run**: an arm has no scores.

Two tests stand side by side; p are one-sided, and Holm-adjusted over all tests of this table. **Mann–Whitney U**
(Markert 2022): a value is the F1 of a label, a site and a network, of ALTV that of the site's model on the frames of
all sites, averaged over the seeds first. It takes the values for independent, which labels of one model are not.
**Bootstrap over videos**: the videos of each site are drawn anew, the same ones for both rows, and counts of frames
added up; p is the share of resamples in which the mean difference is not above 0. What another training would change
is seen in the seeds alone.
"""


class LabelPair(ArmPair):
    """The row ``better`` is above the row ``worse``; ``ALTV`` and ``EGOV`` are rows too."""


class BetterByLabels(BetterClaim):
    """One row is better than another over all labels, sites and variants, in every comparison that is named."""

    rule: ClassVar[str] = LABEL_RULE

    holds: Annotated[list[LabelPair], Field(min_length=1)]

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"row": [row for pair in self.holds for row in (pair.better, pair.worse) if row not in VIEWS]}

    def comparisons(self, evidence: Evidence) -> int:
        return 2 * len(self.holds)

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        if not evidence.labels.have([row for pair in self.holds for row in (pair.better, pair.worse)]):
            return []
        return [one for pair in self.holds for one in compare_labels(evidence.labels, pair.better, pair.worse)]


def compare_labels(scores: LabelScores, better: str, worse: str) -> list[ClaimFinding]:
    """The two tests of whether a row is above another, over all variants; none where a site keeps its counts."""
    variants = scores.variants
    high, low = (np.stack([scores.values(row, name) for name in variants], axis=1) for row in (better, worse))
    difference = np.round((high - low).mean((1, 2, 3)), DECIMALS)  # (S,)
    if not np.isfinite(difference).all():
        return []
    p_u, effect = mann_whitney_less(low.mean(0).ravel(), high.mean(0).ravel())
    drawn = np.mean([scores.resampled(better, name) - scores.resampled(worse, name) for name in variants], axis=(0, 1))
    p_drawn = float((1 + (drawn[1:] <= 0).sum()) / len(drawn))
    (lowest, highest), mean, seeds = interval(drawn[1:]), float(difference.mean()), tuple(map(float, difference))
    cells = {"claimed better": better, "than": worse, "values": str(high[0].size), "difference": signed(mean, 3)}
    u_cells = {**cells, P_COLUMN: "", "p": probability(p_u), "effect": signed(effect, 2)}
    drawn_cells = {
        **cells,
        "95 % interval": f"{signed(lowest, 3)} to {signed(highest, 3)}",
        P_COLUMN: "",
        "p": probability(p_drawn),
    }
    record = {"better": better, "worse": worse, "difference": mean, **signs(seeds), "low": lowest, "high": highest}
    return [
        ClaimFinding(title, tuple(own.items()), seeds, tuple({**record, "test": title, "p": p}.items()), p, mean)
        for title, own, p in (("Mann–Whitney U", u_cells, p_u), ("Bootstrap over videos", drawn_cells, p_drawn))
    ]
