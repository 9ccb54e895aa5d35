"""A job's numbers stay where a bundle can use them, and every study of the repository does."""

from itertools import chain
from pathlib import Path

import pytest
import yaml

from fedmed.bundles.bundle import Bundle, check_ranges, wrong_range
from fedmed.bundles.bundle_parser import BundleParser
from fedmed.bundles.find import SHARED_OVERLAYS
from fedmed.errors import OverrideError

CHECKOUT = Path(__file__).resolve().parents[2]
BUNDLES = sorted(path.name for path in (CHECKOUT / "bundles").iterdir())
ABSURD = [
    ("covid_ct_segmentation", {"patch_size": [10**6] * 3}, "'patch_size': 1000000.* from 4 to 1024"),
    ("covid_ct_segmentation", {"patch_size": [0, 32, 32]}, "'patch_size': .* a whole number from 4"),
    ("covid_ct_segmentation", {"batch_size": 10**9}, "'batch_size': .* a whole number from 1 to 4096"),
    ("covid_ct_segmentation", {"batch_size": -1}, "'batch_size': .* from 1 to 4096"),
    ("covid_ct_segmentation", {"batch_size": 2.5}, "'batch_size': 2.5 must be a whole number"),
    ("covid_ct_segmentation", {"pixdim": [0, 1.0, 1.0]}, "'pixdim': .* from 0.05 to 50"),
    ("covid_ct_segmentation", {"epoch_length": 10**15}, "'epoch_length': .* to 1e.06"),
    ("cxr_classification", {"image_size": 10**6}, "'image_size': .* from 8 to 4096"),
    ("surgical_phase_classification", {"learning_rate": 1e30}, r"'learning_rate': 1e\+30 must be from 0 to 10"),
]


def numeric(value) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(type(one) in (int, float) for one in values)


def files(name: str) -> dict[str, dict]:
    """The configurations of a bundle and the overlays for all, by stem; the bundle's own come first."""
    paths = chain(SHARED_OVERLAYS.values(), (CHECKOUT / "bundles" / name / "configs").glob("*.yaml"))
    return {path.stem: BundleParser.load_config_file(path) for path in paths}


@pytest.mark.parametrize(("name", "overrides", "message"), ABSURD, ids=[str(one[1])[:40] for one in ABSURD])
def test_a_number_that_no_training_can_use_is_refused_before_a_site_sees_it(name, overrides, message):
    with pytest.raises(OverrideError, match=message):
        Bundle(name, [], overrides)


def test_what_has_no_range_or_is_no_number_is_left_to_other_checks():
    check_ranges({"a": 10**9, "b": None, "c": "text", "d": True, "e": [[1], [2]]}, dict.fromkeys("bcde", [1, 2]))
    with pytest.raises(OverrideError, match="'e'"):
        check_ranges({"e": [[1], [3]]}, {"e": [1, 2]})


@pytest.mark.parametrize("ends", [3, [1], [2, 1], ["a", 1], [1, float("nan")], [True, 2], None])
def test_what_is_not_a_range(ends):
    assert wrong_range(ends)


@pytest.mark.parametrize("name", BUNDLES)
def test_every_number_that_a_job_may_change_has_a_range_in_which_the_bundles_own_are(name):
    contents = files(name)
    listed = {key for content in contents.values() for key in content.get("overridable", [])}
    ranges = {key: ends for content in contents.values() for key, ends in content.get("ranges", {}).items()}
    local = [(key, content[key]) for content in contents.values() for key in listed & set(content)]

    assert set(ranges) <= listed
    assert not any(map(wrong_range, ranges.values()))
    assert not sorted({key for key, value in local if numeric(value) and key not in ranges})
    for key, value in local:
        if numeric(value):
            check_ranges({key: value}, ranges)


def overridden(values):
    """Every ``overrides`` of a study or experiment, at any depth."""
    if isinstance(values, dict):
        for key, value in values.items():
            if key == "overrides" and isinstance(value, dict):
                yield from (one if isinstance(one, dict) else value for one in value.values())
            yield from overridden(value)
    elif isinstance(values, list):
        yield from chain.from_iterable(map(overridden, values))


@pytest.mark.parametrize("folder", ["jobs", "research", "examples"])
def test_no_study_or_experiment_of_the_repository_is_beyond_a_range(folder):
    ranges: dict[str, list] = {}
    for content in chain.from_iterable(files(name).values() for name in BUNDLES):
        for key, ends in content.get("ranges", {}).items():
            assert ranges.setdefault(key, ends) == ends, f"{key} has two ranges; then read each study's own bundle"
    for path in (CHECKOUT / folder).rglob("*.yaml"):
        for overrides in overridden(yaml.safe_load(path.read_text(encoding="utf-8"))):
            check_ranges(overrides, ranges)
