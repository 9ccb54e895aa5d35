"""The jobs of the repository say what their names promise."""

import json
from pathlib import Path

import pytest
import yaml

from fedmed.errors import JobError, OverrideError
from fedmed.jobs.job_folder import read_job
from fedmed.jobs.specification import JobSpec, write_job

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SIZE = {"job", "overlays", "rounds", "steps", "warm_start_rounds"}


def flat(value, path=()):
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, (*path, key)).items()}
    return {path: value}


def texts(job):
    return {path.relative_to(JOBS / job).as_posix(): path.read_text() for path in (JOBS / job).rglob("*.json")}


def test_paper_job_differs_only_in_overlay_rounds_and_steps():
    demo, paper = read_job(JOBS / "covid_fssl"), read_job(JOBS / "covid_fssl_paper")
    for ours, theirs in [
        (demo.controller, paper.controller),
        (demo.aggregator, paper.aggregator),
        (demo.persistor, paper.persistor),
        *((demo.clients[site], paper.clients[site]) for site in demo.clients),
    ]:
        a, b = flat(dict(ours)), flat(dict(theirs))
        assert {path[-1] for path in a.keys() | b.keys() if a.get(path) != b.get(path)} <= SIZE
    assert paper.persistor["overlays"] == [] and demo.persistor["overlays"] == ["demo"]
    assert (paper.controller["rounds"], paper.controller["steps"]) == (50, 400)
    assert texts("covid_fssl").keys() == texts("covid_fssl_paper").keys()


@pytest.mark.parametrize("name", ["covid_fssl", "covid_fssl_paper", "covid_fssl_partial"])
def test_job_is_complete(name):
    job = read_job(JOBS / name)
    roles = sorted(args["role"] for args in job.clients.values())
    assert roles == ["evaluate", "supervised", "supervised", "unsupervised"]
    assert {site: args["role"] for site, args in job.clients.items()} == job.controller["sites"]
    meta = json.loads((JOBS / name / "meta.json").read_text())
    assert meta["min_clients"] == 3
    for app in meta["deploy_map"]:
        assert (JOBS / name / app / "custom" / "README.md").is_file()
    for args in job.clients.values():
        assert args.get("sharing") == job.aggregator.get("sharing")
        assert args.get("buffers") == job.aggregator.get("buffers")
        assert args["seed"] == job.persistor["seed"] and args["bundle"] == job.persistor["bundle"]


@pytest.mark.parametrize("name", ["covid_fssl", "covid_fssl_paper", "covid_fssl_partial"])
def test_every_answer_of_a_job_passes_the_sites_limits(name):
    for path in (JOBS / name).glob("app_*/config/config_fed_client.json"):
        config = json.loads(path.read_text())
        (chain,) = config["task_result_filters"]
        assert chain["filters"] == [{"path": "fedmed.flare.filters.SiteLimitsFilter", "args": {}}]
        assert chain["tasks"] == config["executors"][0]["tasks"]


def test_partial_job_keeps_the_decoder_and_asks_a_demo_site_that_allows_it():
    job = read_job(JOBS / "covid_fssl_partial")
    assert job.aggregator["sharing"] == "block_6" and job.controller["release_from"] == "ct_north"
    executors = {
        role: json.loads((JOBS / f"covid_fssl_partial/app_{role}/config/config_fed_client.json").read_text())
        for role in ("supervised", "unsupervised", "evaluate")
    }
    asked = {role: "release" in config["executors"][0]["tasks"] for role, config in executors.items()}
    assert asked == {"supervised": True, "unsupervised": False, "evaluate": False}
    demo = {path.stem: yaml.safe_load(path.read_text()) for path in (JOBS.parent / "site_configs/demo").glob("ct_*")}
    assert [site for site, values in demo.items() if values.get("allow_release")] == ["ct_north"]


def test_writing_is_whole_or_not_at_all(tmp_path):
    sites = {"a": "supervised"}
    with pytest.raises(OverrideError, match="bundle_root"):
        write_job(JobSpec("x", sites, 1, 1, overrides={"supervised": {"bundle_root": "y"}}), tmp_path / "x")
    assert not list(tmp_path.iterdir())
    write_job(JobSpec("x", sites, 1, 1), tmp_path / "x")
    with pytest.raises(JobError, match="exists"):
        write_job(JobSpec("x", sites, 1, 1), tmp_path / "x")
    write_job(JobSpec("x", sites, 2, 1), tmp_path / "x", replace=True)
    assert read_job(tmp_path / "x").controller["rounds"] == 2


def test_settings_that_are_left_alone_are_not_written(tmp_path):
    plain = read_job(write_job(JobSpec("x", {"a": "supervised"}, 2, 1), tmp_path / "x"))
    assert "validate_every" not in plain.controller and "optimizer_state" not in plain.clients["a"]
    spec = JobSpec("y", {"a": "supervised"}, 2, 1, validate_every=2, optimizer_state="reset")
    job = read_job(write_job(spec, tmp_path / "y"))
    assert job.controller["validate_every"] == 2 and job.clients["a"]["optimizer_state"] == "reset"
    for wrong in ({"validate_every": 0}, {"optimizer_state": "keep"}):
        with pytest.raises(JobError, match=next(iter(wrong))):
            JobSpec("z", {"a": "supervised"}, 2, 1, **wrong).files()


@pytest.mark.parametrize("missing", ["meta.json", "app_server/config/config_fed_server.json"])
def test_incomplete_job_names_the_file(tmp_path, missing):
    folder = write_job(JobSpec("x", {"a": "supervised"}, 1, 1), tmp_path / "x")
    (folder / missing).unlink()
    with pytest.raises(JobError, match=f"{missing} is missing"):
        read_job(folder)
