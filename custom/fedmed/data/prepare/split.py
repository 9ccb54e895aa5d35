"""Divide the patients of a site among its datalists. A patient is never in two lists that are compared."""

from collections.abc import Iterable, Sequence

from fedmed.data.datalist import LABELLED
from fedmed.data.prepare.case import Case
from fedmed.errors import DataError
from fedmed.seeds import derive_seed

ROLES = ("labelled", "unlabelled")


def divides(fractions: Sequence[float]) -> bool:
    """Whether patients come into more than one list."""
    return sum(share > 0 for share in fractions) > 1


def apportion(count: int, fractions: Sequence[float]) -> list[int]:
    """Divide ``count`` into integer parts as near to ``fractions`` as possible; earlier parts win a tie.

    A part with a fraction above 0 gets at least one if ``count`` is large enough for all.
    """
    shares = [fraction * count / sum(fractions) for fraction in fractions]
    parts = [int(share + 1e-9) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (parts[i] - shares[i], i))
    for i in by_remainder[: count - sum(parts)]:
        parts[i] += 1
    wanted = [i for i, fraction in enumerate(fractions) if fraction > 0]
    for i in wanted:
        largest = max(wanted, key=lambda j: (parts[j], -j))
        if parts[i] == 0 and parts[largest] > 1:
            parts[i], parts[largest] = 1, parts[largest] - 1
    return parts


def split_patients(patients: Iterable[str], fractions: Sequence[float], seed: int = 0) -> dict[str, str]:
    """Return patient → ``training``, ``validation`` or ``testing``.

    The order is that of a seeded hash of each patient, so it depends neither on the order of files nor on the machine.
    DataError if the fractions are not three numbers of at least 0 with a positive sum.
    """
    if len(fractions) != 3 or min(fractions) < 0 or not 0 < sum(fractions) < float("inf"):
        raise DataError(f"the split {tuple(fractions)} must be three numbers ≥ 0 (training validation testing)")
    ordered = sorted(set(patients), key=lambda patient: (derive_seed(seed, "split", patient), patient))
    counts = apportion(len(ordered), fractions)
    names = [name for name, count in zip(LABELLED, counts, strict=True) for _ in range(count)]
    return dict(zip(ordered, names, strict=True))


def assign(cases: Sequence[Case], role: str, fractions: Sequence[float], seed: int = 0) -> dict[str, str]:
    """Return case → datalist key for the usable cases; a case that is missing from the result must be left out.

    Patients with at least one mask are split. A labelled site trains on their masks; an unlabelled site takes its
    training and validation patients as ``unlabeled`` and keeps masks for ``testing`` only. All other patients are
    ``unlabeled``. A case without a mask whose patient is validated or tested on is left out.

    Raises:
        DataError: unknown role or wrong fractions.
    """
    if role not in ROLES:
        raise DataError(f"the role '{role}' is unknown; use one of {', '.join(ROLES)}")
    usable = [case for case in cases if case.usable]
    lists = split_patients((case.patient for case in usable if case.mask), fractions, seed)
    if role == "unlabelled":
        lists = {patient: name if name == "testing" else "unlabeled" for patient, name in lists.items()}
    assigned = {}
    for case in usable:
        name = lists.get(case.patient, "unlabeled")
        if case.mask or name == "unlabeled":
            assigned[case.case] = name
        elif name == "training":
            assigned[case.case] = "unlabeled"
    return assigned
