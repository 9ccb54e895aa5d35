"""Deterministic splits by patient. They depend on names alone: no seed, no order of a file."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

C = TypeVar("C")  # anything with ``label`` and ``patient``


def halves(cases: Sequence[C], purpose: str) -> tuple[list[C], list[C]]:
    """Two parts with no patient in both, equal in images as nearly as patients allow, and so in each class.

    Args:
        cases: to split; each part keeps their order.
        purpose: two purposes split differently.
    """
    groups = _by_patient(cases)
    strata: dict[tuple[str, ...], list[str]] = {}
    for patient in sorted(groups, key=lambda name: _key(name, purpose)):
        strata.setdefault(tuple(sorted({str(case.label) for case in groups[patient]})), []).append(patient)
    second: set[str] = set()
    for patients in strata.values():
        counts = [0, 0]
        # Those with many images first: what remains uneven is then the last patient with one or two.
        for patient in sorted(patients, key=lambda name: -len(groups[name])):
            part = int(counts[1] < counts[0])
            counts[part] += len(groups[patient])
            if part:
                second.add(patient)
    return [c for c in cases if c.patient not in second], [c for c in cases if c.patient in second]


def share(cases: Sequence[C], fraction: float, purpose: str) -> list[C]:
    """About ``fraction`` of the images, whole patients; a smaller share is part of a larger one.

    Args:
        cases: to choose from.
        fraction: 0 < fraction <= 1.
        purpose: two purposes choose differently.
    """
    groups, wanted, chosen, taken = _by_patient(cases), math.ceil(fraction * len(cases) - 1e-9), set(), 0
    for patient in sorted(groups, key=lambda name: _key(name, purpose)):
        if taken >= wanted:
            break
        chosen.add(patient)
        taken += len(groups[patient])
    return [case for case in cases if case.patient in chosen]


def _by_patient(cases: Iterable[C]) -> dict[str, list[C]]:
    groups: dict[str, list[C]] = {}
    for case in cases:
        groups.setdefault(case.patient, []).append(case)
    return groups


def _key(name: str, purpose: str) -> str:
    return hashlib.sha256(f"{purpose}\x1f{name}".encode()).hexdigest()
