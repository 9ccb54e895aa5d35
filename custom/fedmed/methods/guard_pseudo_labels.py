"""Warn when a site's pseudo-labels collapse: mistakes are reinforced until they are everywhere, or nowhere."""

from statistics import median

from fedmed.messages.answers import Update
from fedmed.methods.guard import Guard, SuspectedCollapse, percent

REFERENCE_ROUNDS = 3  # a site's own first rounds, with which later ones are compared
ALL = 0.9  # no organ or disease fills so much of a scan
RISE = 5.0  # times the reference; over healthy runs it stays below 2.5
RISE_FROM = 0.01  # a smaller reference counts as this, so below 5 % of the voxels a rise is noise, or learning
NONE = 1e-5
FALL = 1 / 20
FALL_FROM = 1e-3  # a site that began below it, such as a control population, may well predict nothing
FALL_TO = 1e-3  # an untrained network predicts half of a scan; coming down from there is learning
FRACTION = "train_foreground_fraction"


class PseudoLabelGuard(Guard):
    """Watches the share of voxels with p > 0.5 that each unlabelled site predicts, the mean over a round's patches.

    It remembers a site's first rounds and finds ``pseudo_labels_spreading`` and ``pseudo_labels_vanished``; value and
    reference are that share in this round and in those. A collapse shows even where the labelled sites still hold the
    global model back.

    A site's first round is never judged: the network may be untrained. A fall to nothing is right at a population
    without disease, which the server cannot know: a site that never predicted any is left in peace, and the message
    about any other says so.

    Args:
        advice: what to do, for the messages, by settings that the method has.
    """

    needs = (FRACTION,)

    def __init__(self, advice: str) -> None:
        super().__init__()
        self.advice = advice

    def judge(self, update: Update) -> SuspectedCollapse | None:
        """See :class:`fedmed.methods.guard.Guard`."""
        fraction, first = update.metrics[FRACTION], self.memory.setdefault(update.site, [])
        reference = median(first) if first else None
        if len(first) < REFERENCE_ROUNDS:
            first.append(fraction)
        found = None if reference is None else collapse(fraction, reference, self.advice)
        if found is None or reference is None:
            return None
        return SuspectedCollapse(update.site, found[1], found[0], fraction, reference)


def collapse(fraction: float, reference: float, advice: str) -> tuple[str, str] | None:
    """Return (kind, message) of a collapse, or None.

    Args:
        fraction: share of voxels predicted as foreground, 0..1.
        reference: the same in the site's first rounds.
        advice: what to do.
    """
    seen = f"of voxels predicted as foreground, {percent(reference)} in the site's first rounds"
    if fraction > ALL or fraction > RISE * max(reference, RISE_FROM):
        return "pseudo_labels_spreading", f"{percent(fraction)} {seen}: its pseudo-labels are spreading; {advice}"
    vanished = fraction < NONE or (fraction < FALL * reference and fraction < FALL_TO)
    if vanished and reference >= FALL_FROM:
        return "pseudo_labels_vanished", (
            f"{percent(fraction)} {seen}: its pseudo-labels have vanished, which is right only where nobody has the "
            f"disease; otherwise {advice}"
        )
    return None
