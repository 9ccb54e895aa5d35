"""The control of a job is written and checked before anything runs; what is in its way is said then."""

import re
import shutil

import pytest

from fedmed.checks.control_check import _withheld, is_done, unmeasured, write_control
from fedmed.errors import JobError
from fedmed.jobs.job_folder import read_job

THREE = {"ct_north": "supervised", "ct_east": "unsupervised", "ct_west": "evaluate"}


@pytest.fixture
def without_test_list(change_lists):
    """Return a function: takes the test list away from sites."""
    return lambda *sites: [change_lists(site, lambda lists: lists.pop("testing")) for site in sites]


def test_it_has_the_name_of_the_job_and_its_sites(tiny_job, tmp_path):
    folder = write_control(tiny_job(sites=THREE), tmp_path / "scratch")
    assert folder == tmp_path / "scratch/tiny"
    assert read_job(folder).study.sites == {**THREE, "ct_east": "evaluate"}


def test_a_site_that_can_neither_train_nor_be_scored_is_not_asked(tiny_job, tmp_path, without_test_list):
    without_test_list("ct_east")
    folder = write_control(tiny_job(sites=THREE), tmp_path / "scratch")
    assert read_job(folder).study.sites == {"ct_north": "supervised", "ct_west": "evaluate"}


def test_a_site_of_whose_gain_nothing_can_be_said_is_named(tiny_job, without_test_list):
    job = tiny_job(sites={**THREE, "ct_south": "unsupervised"})
    assert unmeasured(job) == ""
    without_test_list("ct_east", "ct_west")  # ct_west trains with nobody, so nobody asks what it gains
    assert re.match(r"ct_east has no list 'testing', .* what it gains .* '--split 0 0 1'$", unmeasured(job))
    without_test_list("ct_south")
    assert unmeasured(job).startswith("ct_east and ct_south have no list 'testing'")


def test_without_any_test_list_there_is_nothing_to_compare(tiny_job, tmp_path, without_test_list):
    without_test_list("ct_north", "ct_east")
    job = tiny_job(sites={"ct_north": "supervised", "ct_east": "unsupervised"})
    with pytest.raises(JobError, match="has no control: no site has a list 'testing'"):
        write_control(job, tmp_path / "scratch")


def test_scores_that_no_site_would_let_go_are_no_control_and_are_named_before_anything_runs(
    tiny_job, tmp_path, tiny_site_configs
):
    job, before = tiny_job(sites={"ct_north": "supervised", "ct_east": "unsupervised"}), {}
    for site, least in (("ct_north", 1), ("ct_east", 50)):
        path = tiny_site_configs / f"{site}.yaml"
        before[path] = path.read_text()
        path.write_text(f"{before[path]}privacy: {{min_cases: {least}}}\n")
    try:
        said = r"ct_east has \d+ test cases and lets scores of 50 or more leave; .*--split.*min_cases: 2"
        assert re.match(said, unmeasured(job)) and write_control(job, tmp_path / "one").is_dir()
        assert "{min_cases: 1}' into its YAML, with which" in _withheld({"ct_north": (1, 5), "ct_east": (4, 5)})
        (tiny_site_configs / "ct_north.yaml").write_text(f"{before[path]}privacy: {{min_cases: 50}}\n")
        with pytest.raises(JobError, match=f"nobody would see a test score. {said.replace('ct_east has', '.* has')}"):
            write_control(job, tmp_path / "scratch")
    finally:
        for path, text in before.items():
            path.write_text(text)


def test_a_rule_that_needs_more_sites_says_so(tiny_job, tmp_path):
    job = tiny_job(sites={**THREE, "ct_south": "supervised"}, rule={"args": {"rule": "median"}})
    with pytest.raises(JobError, match="has no control that could run: .*a median needs 3"):
        write_control(job, tmp_path / "scratch")


def test_whether_the_run_itself_is_done(finished_run, tmp_path, change_study):
    job = shutil.copytree(finished_run.parent / "study", tmp_path / "study")
    assert is_done(job, finished_run) and not is_done(job, tmp_path)
    with pytest.raises(JobError, match="another job than .*: 'seed' is the default and 1"):
        is_done(change_study(job, seed=1), finished_run)
