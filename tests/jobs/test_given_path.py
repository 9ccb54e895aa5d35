"""What a path is that somebody gives for a study or a job, and the command that takes it."""

import json

import pytest

from fedmed.checks.part_in_job import find_work
from fedmed.checks.simulated_job import job_sites
from fedmed.errors import JobError
from fedmed.jobs.given_path import KINDS, demand, described, kind_of
from fedmed.jobs.job_folder import read_job
from tests.shipped import CHECKOUT, JOBS, STUDIES

CT = CHECKOUT / "bundles" / "covid_ct_segmentation"
DEMO_SITE = CHECKOUT / "site_configs" / "demo" / "ct_north.yaml"
GIVEN = {  # what it is -> a path of the checkout, or files to make; what the sentence says
    "study": (STUDIES / "tools_fedprox.yaml", "`fedmed simulate .*tools_fedprox.yaml` runs it"),
    "job": (JOBS / "covid_fssl", "a job folder; `fedmed simulate .*covid_fssl` runs it"),
    "part of a job": (JOBS / "covid_fssl" / "meta.json", "a part of the job .*; give the job's folder, .*covid_fssl$"),
    "part of a job ": (JOBS / "covid_fssl" / "app_server", "give the job's folder, .*covid_fssl$"),
    "bundle": (CT, "a bundle; a study names it: `bundle: covid_ct_segmentation`"),
    "part of a bundle": (CT / "configs" / "train.yaml", "a configuration of the bundle .*covid_ct_segmentation;"),
    "site": (DEMO_SITE, "the settings of a site; `fedmed site check .*ct_north.yaml` checks them"),
    "server": (CHECKOUT / "site_configs" / "demo_server.yaml", "the settings of a server;"),
    "project": (CHECKOUT / "site_configs" / "project.yml", "`fedmed provision .*project.yml` makes kits"),
    "table": (CHECKOUT / "research" / "experiments" / "agreement_demo.yaml", "`fedmed research` runs it"),
    "exported bundle": ({"configs/metadata.json": {"federation": {}}}, "`fedmed infer .* SERIES OUT.dcm` uses it"),
    "run": ({"server/simulate_job/fedmed/run.json": {}}, "`fedmed report .*` shows it, `fedmed export"),
    "kit": ({"startup/fed_client.json": {}}, "a startup kit; `fedmed site check SITE.yaml --kit"),
    "datalist": ({"datalist.json": {"training": []}}, "`fedmed site check SITE.yaml` checks it"),
    "other file": ({"scan.json": {"a": 1}}, "`fedmed study init METHOD` writes a study"),
    "other folder": ({"notes.txt": "none"}, r"holds no job \(meta.json is missing\), run or bundle; give the study's"),
    "nothing": (CHECKOUT / "studies" / "no_such.yaml", "not there; correct the path"),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_path_is_called_what_it_is_with_the_command_that_takes_it(kind, tmp_path):
    given, sentence = GIVEN[kind]
    if isinstance(given, dict):
        ((name, content),) = given.items()
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
        given = tmp_path / name if kind in ("datalist", "other file") else tmp_path
    kind = kind.strip()
    assert kind_of(given) == kind
    with pytest.raises(JobError, match=rf"(?s) is needed here: {given} is .*{sentence}"):
        demand(given, "study" if kind == "job" else "job")
    if kind in ("study", "job"):
        assert demand(given, "study", "job") == kind and read_job(given).study.sites
        return
    for read in (read_job, *([job_sites] if given.is_dir() else [])):
        with pytest.raises(JobError, match="is needed here: |meta.json is missing"):
            read(given)
    with pytest.raises(JobError, match="is needed here: |meta.json is missing"):
        find_work(str(given), "a")


@pytest.mark.parametrize("text", ["name: mine\nround: 3\n", "sites: {a: supervised}\nprivacy: {}\n", "a: [\n", "- 1\n"])
def test_a_yaml_that_is_nothing_else_is_read_as_a_study_with_its_mistakes(text, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(JobError, match="mine.yaml[:,] (?!.*is needed here)"):
        read_job(tmp_path / "mine.yaml")
    assert described(tmp_path / "mine.yaml").startswith(f"{tmp_path}/mine.yaml is a study; ")


def test_each_kind_is_tried_here():
    assert {kind.strip() for kind in GIVEN} == set(KINDS)
