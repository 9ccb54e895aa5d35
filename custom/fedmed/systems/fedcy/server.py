"""Warn when the features of a site's frames become the same, so that nothing can be told from them any more."""

from fedmed.messages.answers import Update
from fedmed.methods.guard import Guard, SuspectedCollapse, percent

FALL = 1 / 20
ALIKE = 1e-5  # frames whose features differ less are alike to single precision
ADVICE = "lower learning_rate, set max_grad_norm, or raise variance_floor, and start anew"
SPREAD = "train_feature_spread"


class FeatureGuard(Guard):
    """Watches how unlike the frames that a site compares are to its network: 1 − their mean cosine.

    It remembers a site's first rounds and finds ``features_same``; value and reference are the spread in this round and
    the median of those. A site's first round is not judged: an untrained network sees little in anything.
    """

    needs = (SPREAD,)

    def judge(self, update: Update) -> SuspectedCollapse | None:
        spread = update.metrics[SPREAD]
        reference = self.reference(update.site, spread)
        if reference is None or spread >= max(FALL * reference, ALIKE):
            return None
        spread, reference = max(spread, 0.0), max(reference, 0.0)  # by rounding they may lie below
        message = (
            f"its frames differ by {percent(spread)} of what is possible, by {percent(reference)} in the site's first "
            f"rounds: its features become the same for all frames; {ADVICE}"
        )
        return SuspectedCollapse(update.site, message, "features_same", spread, reference)
