"""A site's part in a job."""

import pytest

from fedmed.checks.work import client_classes, find_work
from fedmed.errors import JobError


def test_a_site_is_found_by_its_name(tiny_job):
    work = find_work(str(tiny_job()), "ct_east")
    assert (work.name, work.role, work.steps, work.rounds) == ("tiny", "unsupervised", 2, 1)
    assert work.args["overlays"] == ["demo", "consistency"]


def test_a_site_that_the_job_does_not_name_says_its_role(tiny_job):
    job = str(tiny_job())
    assert find_work(job, "hospital_k", "evaluate").role == "evaluate"
    with pytest.raises(JobError, match="has no site 'hospital_k'.*ct_north \\(supervised\\).*--role"):
        find_work(job, "hospital_k")
    with pytest.raises(JobError, match="gives site 'ct_east' the role 'unsupervised'"):
        find_work(job, "ct_east", "supervised")


def test_a_bundle_is_enough_and_the_lists_tell_the_role():
    assert find_work("covid_ct_segmentation", "k", lists={"training": 2}).role == "supervised"
    work = find_work("covid_ct_segmentation", "k", overlays=["demo"], lists={"unlabeled": 2})
    assert work.args["overlays"] == ["demo", "consistency"] and work.steps is None
    assert find_work("covid_ct_segmentation", "k", lists={"testing": 1}).role == "evaluate"


@pytest.mark.parametrize("job", ["no_such_thing", "nowhere/job", "."])
def test_no_job_is_one_clear_error(job):
    with pytest.raises(JobError, match="no such job folder|no job folder"):
        find_work(job, "k")


def test_only_a_job_without_own_code_needs_allowed_classes(tiny_job):
    folder = tiny_job()
    work = find_work(str(folder), "other", "unsupervised")
    assert list(client_classes(work)) == []
    (folder / "app_unsupervised" / "custom" / "README.md").unlink()
    (folder / "app_unsupervised" / "custom").rmdir()
    assert "fedmed.flare.executors.ConsistencyExecutor" in set(client_classes(work))
