"""Warn when contrastive pre-training collapses at a site: all images get the same features, or none at all."""

from fedmed.messages.answers import Update
from fedmed.methods.guard import Guard, SuspectedCollapse, percent

ALIKE = 0.99  # positive similarity; in runs that learn it lies around 0.8, and is above 0.99 for a few rounds at most
FALL = 1 / 5  # of the accuracy in the site's best round
LEARNED = 0.05  # a best accuracy below it is no height to fall from
CHANCE = 0.01  # with 100 keys or more, chance finds no more
PATIENCE = 3  # rounds of a site in which a network without any training may well be at chance
DEAD = 0.5  # share of images without any feature
CURED, CURED_ALIKE = 2.0, 0.98  # told of, a collapse is over with twice the accuracy, or below this similarity
ADVICE = (
    "set key_policy refill or use fewer keys (queue_size well below the images of a round), more local epochs a round, "
    "a lower learning_rate or a lower key_momentum"
)
REVIVE = "lower learning_rate or set max_grad_norm, and start anew: what is dead does not learn"
SIMILARITY, ACCURACY, ZERO = "train_positive_similarity", "train_contrastive_accuracy", "train_zero_rows"


class ContrastGuard(Guard):
    """Watches how alike the two views of an image are to each site's network, and how many it finds among other images.

    Features that are the same for every image make every view alike, and leave finding to chance. The loss tells
    less: it ends at log(N + 1), near which it also began.

    It remembers how many rounds a site has trained and its best accuracy, and finds ``features_alike``, with the
    accuracies of this and the best round as value and reference, and ``features_zero``, with the share of images whose
    features are all 0 and the largest share that is left in peace. A site's first round is not judged by its accuracy.
    """

    needs = (SIMILARITY, ACCURACY)

    def judge(self, update: Update) -> SuspectedCollapse | None:
        """See :class:`fedmed.methods.guard.Guard`."""
        similarity, accuracy = (update.metrics[name] for name in self.needs)
        rounds, best = self.memory.get(update.site, (0, 0.0))
        self.memory[update.site] = [rounds + 1, max(best, accuracy)]
        zero = update.metrics.get(ZERO, 0.0)
        if zero > DEAD:
            message = f"{percent(zero)} of its images have no feature above 0: its network is dying; {REVIVE}"
            return SuspectedCollapse(update.site, message, "features_zero", zero, DEAD)
        told = self.told.get(update.site) == "features_alike"
        limit = max(FALL * best if best >= LEARNED else 0.0, CHANCE if rounds >= PATIENCE else 0.0)
        if similarity < (CURED_ALIKE if told else ALIKE) or accuracy >= limit * (CURED if told else 1.0):
            return None
        message = (
            f"two views of an image have a similarity of {similarity:.4f}, and {percent(accuracy)} of them are found "
            f"among other images, {percent(best)} in the site's best round: its features become the same for all "
            f"images; {ADVICE}"
        )
        return SuspectedCollapse(update.site, message, "features_alike", accuracy, best)
