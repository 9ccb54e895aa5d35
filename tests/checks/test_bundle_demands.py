"""Findings on the words that a job's bundle needs of a site."""

from pathlib import Path

import pytest

from fedmed.checks.bundle_demands import read_demands
from fedmed.checks.part_in_job import PartInJob, job_of_bundle

BUNDLES = Path(__file__).resolve().parents[1] / "federation"


@pytest.mark.parametrize(("bundle", "overrides", "rate"), [
    ("instrument_segmentation", {}, 10.0), ("instrument_segmentation", {"frame_rate": 2.5}, 2.5),
    ("cxr_classification", {}, None),
])  # fmt: skip
def test_the_rate_at_which_videos_are_taken(small_site, bundle, overrides, rate):
    work = PartInJob("job", "supervised", job_of_bundle(bundle, "supervised", **overrides))
    demands, _ = read_demands(work, small_site.config(words={}))
    assert demands.bundle is not None and demands.rate == rate


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ({"procedure": "nephrectomy"}, ""),
        ({}, "praxis.yaml: bundle 'small_bundle': 'words' has no 'procedure' (operation of the videos, such as"),
    ],
)
def test_a_word_that_the_bundle_needs_is_a_problem_where_it_is_missing(small_site, monkeypatch, words, fault):
    monkeypatch.setenv("FEDMED_BUNDLES", str(BUNDLES))
    work = PartInJob("job", "supervised", job_of_bundle("small_bundle", "supervised", ["worded"]))
    demands, problems = read_demands(work, small_site.config(words=words))
    assert demands.bundle is not None and [one.level for one in problems] == ["problem"] * bool(fault)
    assert all(fault in one.text and "nephrectomy" not in one.words for one in problems)
