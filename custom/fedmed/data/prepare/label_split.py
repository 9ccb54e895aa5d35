"""Which of equal images or videos counts, and which patient is in which list, by labels."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from fedmed.data.prepare.case import Checked
from fedmed.data.prepare.split import split_patients


def refuse_copies(cases: Sequence[Checked], same: str, noun: str) -> list[list[Checked]]:
    """Keep one of several equal images or videos, if possible a labelled one.

    Args:
        cases: those that are usable are compared by their content.
        same: what is equal, such as ``pixels``.
        noun: what a case is called.

    Returns:
        The groups of two and more, the one that is kept first.
    """
    groups: dict[str, list[Checked]] = defaultdict(list)
    for case in cases:
        if case.usable:
            groups[case.content].append(case)
    equal = [sorted(group, key=lambda case: (not case.label, case.case)) for group in groups.values() if len(group) > 1]
    for first, *others in equal:
        for case in others:
            owner = "" if case.patient == first.patient else f" of another patient, '{first.patient}'"
            case.faults.append(f"same {same} as '{first.case}'{owner}; one {noun} counts once")
    return equal


def refuse_copied_images(cases: Sequence[Checked]) -> None:
    """Keep one of several equal images, if possible a labelled one; refuse all of them if their labels differ."""
    for first, second, *others in refuse_copies(cases, "pixels", "image"):
        labels = sorted({case.label for case in (first, second, *others) if case.label})
        if len(labels) > 1:
            first.faults.append(f"same pixels as '{second.case}', but different labels: {', '.join(labels)}")


def fill_lists(cases: Sequence[Checked], fractions: Sequence[float], seed: int, ignore: bool) -> None:
    """Set ``lists`` of every usable image or video: a patient is in one of training, validation and testing.

    Images without a label are ``unlabeled``, but left out where their patient is validated or tested on; with
    ``ignore`` no image has a label.
    """
    usable = [case for case in cases if case.usable]
    names = {} if ignore else _stratified(usable, fractions, seed)
    for case in usable:
        name = names.get(case.patient)
        if case.label and name:
            case.lists = [name]
        elif name in (None, "training"):
            case.lists = ["unlabeled"]
        else:
            case.notes.append("left out: without a label, and its patient is in validation or testing")


def _stratified(cases: Sequence[Checked], fractions: Sequence[float], seed: int) -> dict[str, str]:
    """Patient → list, for patients with a label; each class is divided by ``fractions``, rounded to patients.

    A patient with several classes counts for the rarest of them.
    """
    classes: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        if case.label:
            classes[case.patient].add(case.label)
    counts = Counter(label for labels in classes.values() for label in labels)
    strata: dict[str, list[str]] = defaultdict(list)
    for patient, labels in classes.items():
        strata[min(labels, key=lambda label: (counts[label], label))].append(patient)
    split: dict[str, str] = {}
    for label in sorted(strata):
        split |= split_patients(strata[label], fractions, seed)
    return split
