"""Patients whose ids are spelled in several ways, or of whom nobody says the id."""

import json
import re

import pytest

from fedmed.data.patients import check_patients, folded
from fedmed.data.prepare.case import Checked
from fedmed.data.prepare.split import BEFORE_LAST, patient_warnings, refuse_shared_prefixes, unite_patients
from fedmed.errors import DataError


def images(tmp_path, names, said=False):
    return [Checked(name, name, tmp_path / name, patient_said=said) for name in names]


def test_blanks_and_leading_zeros_make_no_other_patient():
    assert {folded(other) for other in (" 123", "0123", "123 ")} == {folded("123")} != {folded("1230")}


def test_spellings_of_one_id_are_one_patient_and_told(tmp_path):
    cases = images(tmp_path, ["P01", "p1", "p2"], said=True)
    (line,) = unite_patients(cases)
    assert [case.patient for case in cases] == ["P01", "P01", "p2"] and "'P01' and 'p1'" in line


def test_unsaid_patients_and_one_patient_for_all_stand_on_top(tmp_path):
    cases = images(tmp_path, ["a.png", "b.png"])
    for case, name in zip(cases, ("training", "testing"), strict=True):
        case.lists = [name]
    (text,) = patient_warnings(cases, "image", "Say it")
    assert "each image counts as a patient of its own; scans of one patient may train and test" in text
    for case in cases:
        case.patient, case.patient_said = "7", True
    assert "all 2 images are of one patient, '7'" in patient_warnings(cases, "image", "Say it")[0]


@pytest.mark.parametrize(
    ("names", "proposed"),
    [
        (("Müller - Herd 1.png", "Müller - Herd 2.png", "Groß - Herd 1.png"), True),
        (("Bild 1.png", "Bild 2.png", "Bild 3.png"), False),  # one beginning for all is no patient
        (("Bild 1.png", "Foto 1.png", "c.png"), False),
    ],
)
def test_a_warning_of_unknown_patients_has_a_pattern_where_beginnings_of_names_repeat(tmp_path, names, proposed):
    cases = images(tmp_path, names)
    for place, case in enumerate(cases):
        case.lists = ["training" if place else "testing"]
    (text,) = patient_warnings(cases, "image", "Say it")
    assert (f"perhaps as '{BEFORE_LAST}'" in text) == proposed and ("'Müller - Herd '" in text) == proposed


@pytest.mark.parametrize("names", [("p0_0", "p0_1", "p1_0"), ("anna_scan1", "anna_scan2", "zoe_scan1")])
def test_names_that_share_a_patient_are_refused(tmp_path, names):
    with pytest.raises(DataError, match="--own-patients"):
        refuse_shared_prefixes(images(tmp_path, names), tmp_path, "image", "Say it")


def test_the_pattern_that_the_refusal_says_makes_one_patient_of_their_scans():
    names = ("Köln 0003_Scan 2", "Köln 0003_Scan 4", "ward_2/p1_0", "ward_2/whole")
    found = [re.search(BEFORE_LAST, name) for name in names]
    assert [match and match[1] for match in found] == ["Köln 0003_Scan", "Köln 0003_Scan", "ward_2/p1", None]


@pytest.mark.parametrize("names", [("case_1", "case_2"), ("covid_1", "covid_2", "normal_1"), ("s1_1", "s2_1")])
def test_numbered_names_show_no_patient(tmp_path, names):
    refuse_shared_prefixes(images(tmp_path, names), tmp_path, "image", "Say it")


def test_training_refuses_a_patient_who_is_scored_too_and_does_not_name_him(tmp_path):
    path = tmp_path / "datalist.json"
    one, other = {"image": "a", "patient": "Anna 1"}, {"image": "b", "patient": "anna 01"}
    path.write_text(json.dumps({"training": [one], "testing": [other]}))
    with pytest.raises(DataError, match="entry 0 of 'training' and entry 0 of 'testing'") as refused:
        check_patients(path)
    assert "nna" not in str(refused.value).replace(str(path), "")
    blocks = {"blocks_of": "v"}
    path.write_text(json.dumps({"training": [one | blocks], "testing": [other | blocks]}))
    check_patients(path)
