"""The scalars that leave a site while it works: those that its study declares, finite, and at most so many."""

import logging
import math
from collections import Counter
from collections.abc import Collection

from fedmed.bundles.score import Score
from fedmed.methods.declarations import LOSS, USED_LABELS
from fedmed.methods.method import Method
from fedmed.privacy.allow_lists import VALIDATION
from fedmed.privacy.limits import SiteLimits

log = logging.getLogger("fedmed.site")
TRAIN = "train"
# Parts of the loss that FedMed's trainers report beside it, whatever the method.
PARTS = (LOSS.name, USED_LABELS, "train_unlabelled_loss", "train_ramp_up", "train_supervised", "train_penalty")
PROGRESS_LINES = 20  # of a site in a round; more would cost more than they tell
MOST = 2 * PROGRESS_LINES  # of one name in one task: a round of 39 steps has as many lines as steps


def declared_tags(method: Method, score: Score) -> frozenset[str]:
    """Names on TensorBoard, ``train/loss``, of what a study's sites report while they train."""
    metrics = {*PARTS, *(scalar.name for scalar in method.scalars())}
    trained = {f"{TRAIN}/{name.removeprefix(f'{TRAIN}_')}" for name in metrics if name.startswith(f"{TRAIN}_")}
    return frozenset({*trained, f"{VALIDATION}{score.name}"})


class LiveScalars:
    """Decides which scalars leave. What it lets pass is in the ledger."""

    def __init__(self, limits: SiteLimits, tags: Collection[str]) -> None:
        self.limits, self.tags = limits, frozenset(tags)
        self._sent: Counter[str] = Counter()
        self._held: set[str] = set()

    def begin(self) -> None:
        """Count anew: another task begins."""
        self._sent.clear()

    def passes(self, tag: str, value: float, step: int) -> bool:
        """Tell whether a scalar may leave; if so, it has been written into the ledger.

        Raises:
            PrivacyError: the ledger cannot be written.
        """
        if why := self._refusal(tag, value, step):
            if why not in self._held:
                self._held.add(why)
                log.warning("%s: a scalar for TensorBoard stays here: %s", self.limits.site.site, why)
            return False
        if not self.limits.live(tag, value, step):
            return False
        self._sent[tag] += 1
        return True

    def _refusal(self, tag: str, value: float, step: int) -> str:
        if not isinstance(tag, str) or tag not in self.tags:
            return f"{str(tag)[:80]!r} is none that the study declares"
        if type(value) not in (int, float) or type(step) is not int or not math.isfinite(value):
            return f"{tag!r} is not a finite number with a whole step"
        return f"there were {MOST} of {tag!r} in this task" if self._sent[tag] >= MOST else ""
