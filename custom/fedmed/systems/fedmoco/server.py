"""Self-adaptive aggregation, and a guard that warns when contrastive pre-training collapses."""

import math
from collections.abc import Mapping, Sequence

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.reported import ReportedWeighting
from fedmed.errors import FedMedError, JobError
from fedmed.in_range import in_range
from fedmed.messages.answers import Update
from fedmed.methods.guard import Guard, SuspectedCollapse, percent

FORMS = ("gap", "softmax")
NO_CHANGE = 1e-12  # below this sum of gaps nothing can be told apart
ALIKE = 0.99  # positive similarity; in runs that learn it lies around 0.8, and is above 0.99 for a few rounds at most
FALL = 1 / 5  # of the accuracy in the site's best round
LEARNED = 0.05  # a best accuracy below it is no height to fall from
CHANCE = 0.01  # with 100 keys or more, chance finds no more
GRACE_ROUNDS = 3  # rounds of a site in which a network without any training may well be at chance
DEAD = 0.5  # share of images without any feature
CURED, CURED_ALIKE = 2.0, 0.98  # told of, a collapse is over with twice the accuracy, or below this similarity
ADVICE = (
    "set key_policy refill or use fewer keys (queue_size well below the images of a round), more local epochs a round, "
    "a lower learning_rate or a lower key_momentum"
)
REVIVE = "lower learning_rate or set max_grad_norm, and start anew: what is dead does not learn"
SIMILARITY, ACCURACY, ZERO = "train_positive_similarity", "train_contrastive_accuracy", "train_zero_rows"


class SelfAdaptiveWeighting(ReportedWeighting):
    """By how much each site's representation changed in the round (FedMoCo, Eq. 7).

    Where a site that counts does not send its similarity, the round is weighed by samples.

    Args:
        name: of the similarity, among the values beside the model that a site sends.
        form: ``gap`` or ``softmax``.
        floor: the least that a site counts, [0, 1).

    Raises:
        JobError: an unknown form, or a number out of range.
    """

    kind = "similarity"

    def __init__(self, name: str, form: str = FORMS[0], floor: float = 0.0) -> None:
        super().__init__(name)
        _check_form(form)
        self.form, self.floor = form, in_range("floor", floor, least=0, below=1)

    def check_sites(self, sites: int) -> None:
        if self.floor * sites > 1:
            raise JobError(f"'floor' is {self.floor}; {sites} sites cannot all count so much: at most {1 / sites:g}")

    def out_of_range(self, value: float) -> str | None:
        return None if -1 <= value <= 1 else "in [-1, 1]"

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Shares that sum to 1, over the sites whose user weight is not 0."""
        r = {u.site: float(u.extras[self.name]) for u in updates if user_weights.get(u.site, 1.0)}
        others = dict.fromkeys((update.site for update in updates), 0.0)
        return others | (self_adaptive_weights(r, self.form, self.floor) if r else {})


def self_adaptive_weights(r: Mapping[str, float], form: str = "gap", floor: float = 0.0) -> dict[str, float]:
    """Return each site's coefficient from its representation similarity, in order of site names; they sum to 1.

    ::

        form="gap"       a_k = (1 - r_k) / Σ_j (1 - r_j)      Eq. 7; all r = 1: 1 / K
        form="softmax"   a_k = e^(-r_k) / Σ_j e^(-r_j)

    The equation is the reading of a text that gives it in words. With ``gap`` a site whose representation did not
    change counts nothing, and a diverging one most of all: the caller must have refused updates that are not finite.
    The number of images has no influence, on purpose.

    Args:
        r: site -> Spearman correlation of its dissimilarities before and after training; clipped to [-1, 1].
        form: ``gap`` or ``softmax``.
        floor: smallest coefficient of a site, in [0, 1 / K]; what the others have above it shrinks alike.

    Raises:
        JobError: an unknown form, or a floor outside its range.
        FedMedError: there is no site, or an r is not a finite number.

    Example:
        >>> self_adaptive_weights({"a": 0.5, "b": 0.0, "c": 0.5})
        {'a': 0.25, 'b': 0.5, 'c': 0.25}
    """
    _check_form(form)
    if not r:
        raise FedMedError("self-adaptive weights need the similarity of at least one site; there is none")
    if not 0 <= floor <= 1 / len(r):
        raise JobError(f"floor is {floor}; {len(r)} sites share 1, so use a number from 0 to {1 / len(r):g}")
    sites = sorted(r)
    clipped = {site: _clipped(site, r[site]) for site in sites}
    shares = {site: 1 - clipped[site] if form == "gap" else math.exp(-clipped[site]) for site in sites}
    if math.fsum(shares.values()) < NO_CHANGE:
        shares = dict.fromkeys(sites, 1.0)
    # fsum is exact, so the coefficients do not depend on the order of the sites.
    total = math.fsum(shares.values())
    return _raised({site: share / total for site, share in shares.items()}, floor)


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise JobError(f"'form' is {form!r}; use {' or '.join(FORMS)}")


def _clipped(site: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FedMedError(f"similarity of site '{site}' is {value!r}; it must be a finite number from -1 to 1")
    return min(1.0, max(-1.0, float(value)))


def _raised(weights: dict[str, float], floor: float) -> dict[str, float]:
    """Lift what is below the floor to it, at the cost of the rest in proportion; again while that pushes others below.

    Each turn lifts one site at least, so there are at most as many turns as sites.
    """
    low: set[str] = set()
    while new := {site for site, weight in weights.items() if weight < floor} - low:
        low |= new
        rest = math.fsum(weight for site, weight in weights.items() if site not in low)
        scale = (1 - floor * len(low)) / rest if rest else 0.0
        weights = {site: floor if site in low else weight * scale for site, weight in weights.items()}
    return weights


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
        similarity, accuracy = (update.metrics[name] for name in self.needs)
        rounds, best = self.memory.get(update.site, (0, 0.0))
        self.memory[update.site] = [rounds + 1, max(best, accuracy)]
        zero = update.metrics.get(ZERO, 0.0)
        if zero > DEAD:
            message = f"{percent(zero)} of its images have no feature above 0: its network is dying; {REVIVE}"
            return SuspectedCollapse(update.site, message, "features_zero", zero, DEAD)
        warned = self.findings.get(update.site) == "features_alike"
        limit = max(FALL * best if best >= LEARNED else 0.0, CHANCE if rounds >= GRACE_ROUNDS else 0.0)
        if similarity < (CURED_ALIKE if warned else ALIKE) or accuracy >= limit * (CURED if warned else 1.0):
            return None
        message = (
            f"two views of an image have a similarity of {similarity:.4f}, and {percent(accuracy)} of them are found "
            f"among other images, {percent(best)} in the site's best round: its features become the same for all "
            f"images; {ADVICE}"
        )
        return SuspectedCollapse(update.site, message, "features_alike", accuracy, best)
