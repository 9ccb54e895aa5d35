"""A site's part in a job."""

import pytest

from fedmed.checks.part_in_job import find_work
from fedmed.checks.startup_kit import client_app
from fedmed.errors import JobError


def test_a_site_is_found_by_its_name_in_a_job_and_in_its_study(tiny_job):
    job = tiny_job()
    for place in (job, next(job.glob("*/config/study.yaml"))):
        work = find_work(str(place), "ct_east")
        assert (work.name, work.role, work.study.steps, work.study.rounds) == ("tiny", "unsupervised", 2, 1)
        assert work.job.overlays("unsupervised") == ["demo", "coarse", "unlabelled", "consistency"]


def test_a_site_that_the_job_does_not_name_says_its_role(tiny_job):
    job = str(tiny_job())
    assert find_work(job, "hospital_k", "evaluate").role == "evaluate"
    with pytest.raises(JobError, match="has no site 'hospital_k'.*ct_north \\(supervised\\).*--role"):
        find_work(job, "hospital_k")
    with pytest.raises(JobError, match="gives site 'ct_east' the role 'unsupervised'"):
        find_work(job, "ct_east", "supervised")


@pytest.mark.parametrize(("lists", "role"), [({"training": 4}, "supervised"), ({"unlabeled": 3}, "unsupervised")])
def test_lists_tell_the_role_of_a_site_that_the_job_does_not_name(tiny_job, lists, role):
    job = str(tiny_job())
    work = find_work(job, "hospital_k", lists=lists)
    assert (work.role, work.by_lists) == (role, True)
    named = find_work(job, "ct_east", lists={"training": 4})
    assert (named.role, named.by_lists) == ("unsupervised", False)  # the job has the last word


def test_a_role_that_the_job_does_not_have_is_an_error_also_where_lists_tell_it(tiny_job):
    job = str(tiny_job(sites={"ct_north": "supervised", "ct_east": "unsupervised"}))
    with pytest.raises(JobError, match="has no site 'hospital_k' and no role 'evaluate'"):
        find_work(job, "hospital_k", lists={"testing": 1})


def test_a_bundle_is_enough_and_the_lists_tell_the_role():
    assert find_work("covid_ct_segmentation", "k", lists={"training": 2}).role == "supervised"
    work = find_work("covid_ct_segmentation", "k", overlays=["demo"], lists={"unlabeled": 2})
    assert work.job.overlays("unsupervised") == ["demo", "unlabelled", "agreement"] and work.study is None
    assert find_work("covid_ct_segmentation", "k", lists={"testing": 1}).role == "evaluate"


@pytest.mark.parametrize("job", ["no_such_thing", "nowhere/job", "."])
def test_no_job_is_one_clear_error(job):
    with pytest.raises(JobError, match="no such job folder|not a job folder"):
        find_work(job, "k")


def test_what_a_job_needs_of_a_kit(tiny_job):
    folder = tiny_job()
    work = find_work(str(folder), "other", "unsupervised")
    classes, own_code = client_app(work)
    assert "fedmed.flare.executors.ConsistencyExecutor" in classes and own_code
    (folder / "app_unsupervised" / "custom" / "README.md").unlink()
    (folder / "app_unsupervised" / "custom").rmdir()
    assert client_app(work) == (classes, False)
    assert client_app(find_work("covid_ct_segmentation", "k", "evaluate")) == (set(), False)


def test_the_app_of_a_study_is_that_of_its_job(tiny_job):
    job = tiny_job()
    app = client_app(find_work(str(job), "ct_east"))
    assert client_app(find_work(str(next(job.glob("*/config/study.yaml"))), "ct_east")) == app and app[0]


def test_a_job_that_no_federation_would_run_is_refused(tiny_job, change_study):
    with pytest.raises(JobError, match="'sites.ct_north' is 'boss'"):
        find_work(str(change_study(tiny_job(), sites={"ct_north": "boss"})), "ct_north")
