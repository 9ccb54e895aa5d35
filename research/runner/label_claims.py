"""One row of a table is above another over all labels and sites: by Mann–Whitney, and by a jackknife over videos."""

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedmed.training.jackknife import estimate
from research.runner.label_scores import VIEWS, LabelScores
from research.runner.paired_statistics import DECIMALS, mann_whitney_less
from research.runner.table_claim import P_COLUMN, ArmPair, BetterClaim, ClaimFinding, Evidence, signs
from research.runner.words_of_tables import cannot_tell, probability, signed, span

LABEL_RULE = """\
- **✓**: every test has the claimed sign in the mean and in every seed, and p < 0.05.
- **n.s.**: not so. **reported**: numbers only. **not run**: an arm has no scores.

Two tests stand side by side; p are one-sided, and Holm-adjusted over all tests of this table. **Mann–Whitney U**
(Markert 2022): a value is the F1 of a label, a site and a network, of ALTV that of the site's model on the frames of
all sites, averaged over the seeds first. It takes the values for independent, which labels of one model are not.
**Jackknife over videos**: each video is left out once, from both rows, and counts of frames added up; how much that
moves the mean difference, beside the other videos of the same site, is what a t test is made of. The 90 % interval
begins above 0 where p < 0.05, before Holm. "N videos cannot tell" where a site has one video, or there are fewer than
three beyond the first of each site. What another training would change is seen in the seeds alone.
"""
U_TEST, VIDEO_TEST = "Mann–Whitney U", "Jackknife over videos"
ONE_SIDED = 0.9  # level of the interval that agrees with a one-sided p at 5 %


class LabelPair(ArmPair):
    """The row ``better`` is above the row ``worse``; ``ALTV`` and ``EGOV`` are rows too."""


class BetterByLabels(BetterClaim):
    """One row is better than another over all labels, sites and variants, in every comparison that is named."""

    rule: ClassVar[str] = LABEL_RULE

    holds: Annotated[list[LabelPair], Field(min_length=1)]

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"row": [row for pair in self.holds for row in (pair.better, pair.worse) if row not in VIEWS]}

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
    moved = np.mean([scores.left_out(better, name) - scores.left_out(worse, name) for name in variants], axis=(0, 1))
    interval, mean, seeds = estimate(moved, scores.strata), float(difference.mean()), tuple(map(float, difference))
    ends, p = ((None, None), None) if interval is None else (interval.interval(ONE_SIDED), interval.p_above())
    cells = {"claimed better": better, "than": worse, "values": str(high[0].size), "difference": signed(mean, 3)}
    u_cells = {**cells, P_COLUMN: "", "p": probability(p_u), "effect": signed(effect, 2)}
    video_cells = {**cells, "90 % interval": span(*ends), P_COLUMN: "", "p": probability(p)}
    record = {"better": better, "worse": worse, "difference": mean, **signs(seeds)}
    u_record = {**record, "low": None, "high": None, "test": U_TEST, "p": p_u}
    video_record = {**record, "low": ends[0], "high": ends[1], "test": VIDEO_TEST, "p": p}
    few = cannot_tell(len(scores.strata), "video") if interval is None else ""
    return [
        ClaimFinding(U_TEST, tuple(u_cells.items()), seeds, tuple(u_record.items()), p_u, mean),
        ClaimFinding(VIDEO_TEST, tuple(video_cells.items()), seeds, tuple(video_record.items()), p, mean, too_few=few),
    ]
