"""Splits keep patients together, depend on names alone and are even."""

from collections import Counter

import numpy as np

from research.runner.hospital_images import ImageCase, halves, share

GENERATOR = np.random.default_rng(0)
CASES = [
    ImageCase(f"{patient}_{i}.png", "ill" if patient % 3 else "normal", f"p{patient}")
    for patient in range(90)
    for i in range(GENERATOR.integers(1, 6))
]


def test_halves_have_no_patient_in_common_and_are_even_in_every_class():
    a, b = halves(CASES, "test")
    assert not {c.patient for c in a} & {c.patient for c in b} and len(a) + len(b) == len(CASES)
    for label in ("ill", "normal"):
        counts = [Counter(c.label for c in half)[label] for half in (a, b)]
        assert abs(counts[0] - counts[1]) <= 2


def test_halves_depend_on_names_and_purpose_alone():
    a, _ = halves(CASES, "test")
    assert {c.image for c in halves(CASES[::-1], "test")[0]} == {c.image for c in a}
    assert {c.image for c in halves(CASES, "nodes")[0]} != {c.image for c in a}


def test_shares_are_nested_and_of_whole_patients():
    quarter, half = share(CASES, 0.25, "size"), share(CASES, 0.5, "size")
    assert {c.image for c in quarter} < {c.image for c in half} < {c.image for c in CASES}
    assert abs(len(quarter) - len(CASES) / 4) <= 5 and share(CASES, 1, "size") == CASES
    chosen = {c.patient for c in half}
    assert [c for c in CASES if c.patient in chosen] == half
