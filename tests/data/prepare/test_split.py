"""Patients are divided once, the same way everywhere."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmed.data.prepare.case import Case
from fedmed.data.prepare.split import apportion, assign, split_patients
from fedmed.errors import DataError

FRACTIONS = st.tuples(*[st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.6, 1.0])] * 3).filter(lambda f: sum(f) > 0)
PATIENTS = st.integers(0, 12)


@st.composite
def sites(draw):
    drawn = draw(st.lists(st.tuples(PATIENTS, st.booleans(), st.booleans()), max_size=30))
    cases = []
    for number, (patient, masked, faulty) in enumerate(drawn):
        mask = Path("m") if masked else None
        faults = ["broken"] if faulty else []
        cases.append(Case(f"c{number}", f"p{patient}", Path("i"), mask=mask, faults=faults))
    return cases


@given(st.integers(0, 200), FRACTIONS)
def test_parts_sum_up_and_none_is_forgotten(count, fractions):
    parts = apportion(count, fractions)
    assert sum(parts) == count
    assert all(part == 0 for part, fraction in zip(parts, fractions, strict=True) if fraction == 0)
    wanted = sum(fraction > 0 for fraction in fractions)
    assert sum(part > 0 for part in parts) == min(count, wanted) or count < wanted
    exact = [fraction * count / sum(fractions) for fraction in fractions]
    assert all(math.floor(e + 1e-9) - 2 <= p <= math.ceil(e) + 2 for p, e in zip(parts, exact, strict=True))


@pytest.mark.parametrize("wanted", [(40, 8, 32), (13, 6, 6)])
def test_numbers_of_patients_are_met(wanted):
    """Those of the 80 and the 25 operations of Kassem et al. 2023."""
    lists = list(split_patients(map(str, range(sum(wanted))), wanted).values())
    assert tuple(map(lists.count, ("training", "validation", "testing"))) == wanted


@given(sites(), st.sampled_from(["labelled", "unlabelled"]), FRACTIONS, st.integers(0, 5))
def test_no_patient_is_trained_on_and_tested_on(cases, role, fractions, seed):
    assigned = assign(cases, role, fractions, seed)
    groups = {}
    for case in cases:
        if case.case in assigned:
            name = assigned[case.case]
            groups.setdefault(case.patient, set()).add("training" if name == "unlabeled" else name)
    assert all(len(names) == 1 for names in groups.values())
    by_name = {case.case: case for case in cases}
    assert all(by_name[name].usable for name in assigned)
    assert all(by_name[name].mask for name, where in assigned.items() if where != "unlabeled")
    if role == "unlabelled":
        assert set(assigned.values()) <= {"unlabeled", "testing"}


@given(st.lists(st.text(min_size=1, max_size=4), max_size=20, unique=True), st.integers(0, 3))
def test_the_split_knows_no_order(patients, seed):
    result = split_patients(patients, (0.6, 0.2, 0.2), seed)
    for other in (sorted(patients), reversed(patients), set(patients)):
        assert split_patients(other, (0.6, 0.2, 0.2), seed) == result


def test_the_split_is_frozen_and_follows_the_seed():
    patients = [f"p{n}" for n in range(10)]
    first = split_patients(patients, (0.6, 0.2, 0.2))
    assert sorted(first.values()) == ["testing"] * 2 + ["training"] * 6 + ["validation"] * 2
    assert [p for p, name in sorted(first.items()) if name == "testing"] == ["p1", "p9"]
    assert first != split_patients(patients, (0.6, 0.2, 0.2), seed=1)
    assert split_patients(["only"], (0.6, 0.2, 0.2)) == {"only": "training"}


def test_wrong_fractions_and_roles_are_refused():
    for fractions in ((0.5, 0.5), (-0.1, 0.5, 0.6), (0, 0, 0), (float("nan"), 1, 1)):
        with pytest.raises(DataError, match="split"):
            split_patients(["a"], fractions)
    with pytest.raises(DataError, match="role 'teacher'"):
        assign([], "teacher", (1, 0, 0))
