"""Words of a site that a bundle needs, and how a site is told what is missing."""

from pathlib import Path

import pytest
from monai.bundle import ConfigParser

from fedmed.bundles.site_facts import attributes_fault, attributes_needed, check_attributes
from fedmed.errors import BundleError, SiteConfigError

MEANING = "operation of the videos"


def parser(**values):
    return ConfigParser(values)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ({"procedure": "nephrectomy"}, ""),
        ({}, "'words' has no 'procedure' (operation of the videos); write 'words: {procedure: …}'"),
        ({"procedur": "x"}, "it has 'procedur': correct the name; write 'words: {procedure: …}'"),
    ],
)
def test_a_word_that_is_needed_must_be_there(words, fault):
    result = attributes_fault({"procedure": MEANING}, words)
    assert result.endswith(fault) and bool(result) == bool(fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nephrectomy", ""),
        (
            "nefrectomy",
            "'words.procedure' is 'nefrectomy', which the bundle does not know; did you mean 'nephrectomy'?",
        ),
        ("knee", "use one of nephrectomy, prostatectomy"),
    ],
)
def test_a_text_may_have_to_be_one_that_is_known(text, fault):
    result = attributes_fault({"procedure": ["nephrectomy", "prostatectomy"]}, {"procedure": text})
    assert result.endswith(fault) and bool(result) == bool(fault)


def test_what_is_needed_may_depend_on_other_settings():
    requested = f"$dict(procedure='{MEANING}') if @indicator == 'text' else dict()"
    assert attributes_needed(parser(indicator="text", words_needed=requested)) == {"procedure": MEANING}
    assert attributes_needed(parser(indicator="file", words_needed=requested)) == {} == attributes_needed(parser())
    with pytest.raises(BundleError, match="'words_needed' is .*; it must be a mapping"):
        attributes_needed(parser(words_needed=["procedure"]))


def test_the_error_names_the_file_and_the_bundle():
    requested = parser(words_needed={"procedure": MEANING})
    with pytest.raises(SiteConfigError, match=r"a\.yaml: bundle 'b' needs a word of this site: 'words' has no 'proced"):
        check_attributes(requested, {}, Path("a.yaml"), "b")
    check_attributes(requested, {"procedure": "lobectomy"}, Path("a.yaml"), "b")
