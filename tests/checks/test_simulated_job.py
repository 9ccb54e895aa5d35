"""Input of the simulator: the job folder of a study, and where studies are that were jobs."""

from pathlib import Path

import pytest

from fedmed.checks.simulated_job import job_sites, packaged
from fedmed.errors import JobError
from fedmed.jobs.job_folder import read_job
from tests.shipped import JOBS, STUDIES, shipped


def test_a_study_becomes_the_job_that_it_describes(tmp_path):
    study = shipped("tools_fedprox")
    job = packaged(study, tmp_path)
    assert job.name == "tools_fedprox" and read_job(job).text == study.read_text()
    assert job_sites(job) == list(read_job(study).study.sites)


def test_a_job_is_taken_as_it_is(tmp_path):
    assert packaged(JOBS / "covid_fssl", tmp_path) == JOBS / "covid_fssl" and not list(tmp_path.iterdir())


def test_mistakes_of_a_study_are_told_with_their_line(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\nbundle: covid_ct_segmentation\nround: 3\n")
    with pytest.raises(JobError, match="(?s)mine.yaml: 4 mistakes.*line 3: unknown key 'round'; did you mean"):
        packaged(tmp_path / "mine.yaml", tmp_path)


def test_a_job_that_is_a_study_now_is_told_with_the_command(monkeypatch):
    monkeypatch.chdir(JOBS.parent)
    with pytest.raises(JobError, match=r"tools_fedprox is a study now; .*simulate studies/tools_fedprox.yaml"):
        job_sites(Path.cwd() / "jobs" / "tools_fedprox")
    with pytest.raises(JobError, match="no job at .*the folder does not exist"):
        job_sites(JOBS / "tools_fedproxy")
    with pytest.raises(JobError, match=r"no study at .*tools_fedprx.yaml: .*; did you mean tools_fedprox.yaml\?"):
        job_sites(STUDIES / "tools_fedprx.yaml")


def test_jobs_and_studies_are_few_files():
    files = [path for folder in (JOBS, STUDIES) for path in folder.rglob("*") if path.is_file()]
    assert len(files) <= 200 and 12 <= len(list(JOBS.iterdir())) <= 16
