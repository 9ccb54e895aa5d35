"""A class of a study: its name, and what is said of it."""

import pytest
from pydantic import ValidationError

from fedmed.data.structure import Structure, described, titles

LUNG = Structure(name="lung", label="lungs", unit="l", colour="#4f9bd9")


@pytest.mark.parametrize("name", ["lung", "no finding", "COVID-19", "left_lobe.2"])
def test_names_that_a_datalist_may_spell(name):
    assert Structure(name=name).title == name.replace("_", " ")


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"name": "a,b"}, "letters a-z, digits, spaces"),
        ({"name": ""}, "letters a-z, digits, spaces"),
        ({"name": " x"}, "a letter or digit first"),
        ({"name": "$x"}, "a letter or digit first"),
        ({"name": "x", "colour": "red"}, "write '#rrggbb'"),
        ({"name": "x", "unit": "kg"}, "'ml' or 'l'"),
        ({"name": "x", "code": {"value": "1"}}, "Field required"),
        ({"name": "x", "size": 1}, "Extra inputs"),
    ],
)
def test_what_is_not_a_class(values, what):
    with pytest.raises(ValidationError, match=what):
        Structure(**values)


@pytest.mark.parametrize(
    ("unit", "millilitres", "text"),
    [("l", 5960.0, "5.96 l"), ("ml", 5960.0, "5,960 ml"), ("ml", 0.0421, "0.0421 ml"), ("ml", 999.6, "1,000 ml"),
     ("ml", 998.0, "998 ml"), ("ml", 0, "0 ml")],
)  # fmt: skip
def test_a_volume_never_has_an_exponent(unit, millilitres, text):
    assert Structure(name="lung", unit=unit).amount(millilitres) == text


def test_the_study_says_more_than_the_bundle_and_a_bare_name_says_nothing():
    study = Structure(name="lung", label="my lungs")
    assert described(["lung"], [study], [LUNG]) == [study]
    assert described(["lung", "heart"], [Structure(name="lung")], [LUNG]) == [LUNG, Structure(name="heart")]
    assert titles(described(["heart", "lung"], [LUNG])) == "heart, lungs"


def test_facts_can_be_read_again():
    assert Structure(**LUNG.facts()) == LUNG and Structure(name="a").facts() == {"name": "a", "unit": "ml"}
