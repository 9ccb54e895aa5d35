"""The jobs of the repository say what their names promise."""

import json

import pytest
import yaml

from fedmed.errors import JobError
from fedmed.jobs.job_folder import read_job, write_job
from tests.shipped import JOBS, shipped

CT_JOBS = ["covid_agreement", "covid_agreement_paper", "covid_fssl", "covid_fssl_paper", "covid_fssl_partial"]
SIZE = {"encoder", "job", "overlays", "rounds", "steps", "warm_start_rounds"}
# In the demo's setting of the paper's family, of which the worst-off hospital loses least.
LOSES_LEAST = {"consistency_loss", "consistency_scope", "final_div_factor", "pct_start"}


def flat(value, path=()):
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, (*path, key)).items()}
    return {path: value}


def texts(job):
    return {path.relative_to(JOBS / job).as_posix(): path.read_text() for path in (JOBS / job).rglob("*.json")}


@pytest.mark.parametrize(
    ("name", "own", "overlays"), [("covid_agreement", set(), []), ("covid_fssl", LOSES_LEAST, ["one_cycle"])]
)
def test_paper_job_differs_only_in_overlay_rounds_and_steps(name, own, overlays):
    demo, paper = read_job(shipped(name)), read_job(shipped(f"{name}_paper"))
    for ours, theirs in [
        (demo.controller, paper.controller),
        (demo.aggregator, paper.aggregator),
        (demo.persistor, paper.persistor),
        *((demo.clients[site], paper.clients[site]) for site in demo.clients),
    ]:
        a, b = flat(dict(ours)), flat(dict(theirs))
        assert {path[-1] for path in a.keys() | b.keys() if a.get(path) != b.get(path)} <= SIZE | own
    assert demo.persistor["overlays"] == ["demo", *paper.persistor["overlays"], *overlays]
    assert (paper.controller["rounds"], paper.controller["steps"]) == (50, 400)
    assert texts(name).keys() == texts(f"{name}_paper").keys()


@pytest.mark.parametrize("name", CT_JOBS)
def test_job_is_complete(name, tmp_path):
    job = read_job(shipped(name))
    roles = sorted(args["role"] for args in job.clients.values())
    assert roles == ["evaluate", "supervised", "supervised", "unsupervised"]
    assert {site: args["role"] for site, args in job.clients.items()} == job.controller["sites"]
    folder = write_job(job, tmp_path / name)
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["min_clients"] == 3
    for app in meta["deploy_map"]:
        assert (folder / app / "custom" / "README.md").is_file()
    for args in job.clients.values():
        assert args.get("sharing") == job.aggregator.get("sharing")
        assert args.get("buffers") == job.aggregator.get("buffers")
        assert args["seed"] == job.persistor["seed"] and args["bundle"] == job.persistor["bundle"]


@pytest.mark.parametrize("name", CT_JOBS[:-1])
def test_every_answer_of_a_job_passes_the_sites_limits(name):
    for path in (JOBS / name).glob("app_*/config/config_fed_client.json"):
        config = json.loads(path.read_text())
        (chain,) = config["task_result_filters"]
        assert chain["filters"] == [{"path": "fedmed.flare.filters.SiteLimitsFilter", "args": {}}]
        assert chain["tasks"] == config["executors"][0]["tasks"]


def test_partial_job_keeps_the_decoder_and_asks_a_demo_site_that_allows_it(tmp_path):
    job = read_job(shipped("covid_fssl_partial"))
    folder = write_job(job, tmp_path / "job")
    assert job.aggregator["sharing"] == "block_6" and job.controller["release_from"] == "ct_north"
    executors = {
        role: json.loads((folder / f"app_{role}/config/config_fed_client.json").read_text())
        for role in ("supervised", "unsupervised", "evaluate")
    }
    asked = {role: "release" in config["executors"][0]["tasks"] for role, config in executors.items()}
    assert asked == {"supervised": True, "unsupervised": False, "evaluate": False}
    demo = {path.stem: yaml.safe_load(path.read_text()) for path in (JOBS.parent / "site_configs/demo").glob("ct_*")}
    assert [site for site, values in demo.items() if values.get("allow_release")] == ["ct_north"]


@pytest.fixture
def job(job_of):
    """Return a function: a job of one site and one round."""
    return lambda **values: job_of(**{"name": "x", "sites": {"a": "supervised"}, "rounds": 1, "steps": 1, **values})


@pytest.mark.parametrize("name", sorted(path.name for path in JOBS.iterdir()))
def test_all_apps_carry_the_same_study_and_the_folder_is_what_it_makes(name, tmp_path):
    folder = JOBS / name
    apps = json.loads((folder / "meta.json").read_text())["deploy_map"]
    (text,) = {(folder / app / "config/study.yaml").read_bytes() for app in apps}
    assert b"#" in text, "it explains itself"
    made = write_job(read_job(folder), tmp_path / name)
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == {path.relative_to(made): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    for path in folder.glob("app_*/config/config_fed_*.json"):
        config = json.loads(path.read_text())
        parts = [entry["executor"] for entry in config.get("executors", [])] + config.get("workflows", [])
        parts += [part for part in config["components"] if part["path"].startswith("fedmed")]
        assert parts and not any(part["args"] for part in parts), "no value of the study is said twice"


def test_writing_is_whole_or_not_at_all(tmp_path, job):
    with pytest.raises(JobError, match="bundle_root"):
        write_job(job(overrides={"supervised": {"bundle_root": "y"}}), tmp_path / "x")
    assert not list(tmp_path.iterdir())
    write_job(job(), tmp_path / "x")
    with pytest.raises(JobError, match="exists"):
        write_job(job(), tmp_path / "x")
    write_job(job(rounds=2), tmp_path / "x", replace=True)
    assert read_job(tmp_path / "x").controller["rounds"] == 2


def test_settings_that_are_left_alone_are_not_written(tmp_path, job):
    plain = read_job(write_job(job(rounds=2), tmp_path / "x"))
    assert "validate_every" not in plain.controller and "optimizer_state" not in plain.clients["a"]
    made = read_job(write_job(job(rounds=2, validate_every=2, optimizer_state="reset"), tmp_path / "y"))
    assert made.controller["validate_every"] == 2 and made.clients["a"]["optimizer_state"] == "reset"
    for wrong in ({"validate_every": 0}, {"optimizer_state": "keep"}):
        with pytest.raises(JobError, match=next(iter(wrong))):
            job(**wrong)


@pytest.mark.parametrize("missing", ["meta.json", "app_server/config/study.yaml", "app_supervised/config/study.yaml"])
def test_incomplete_job_names_the_file(tmp_path, job, missing):
    folder = write_job(job(), tmp_path / "x")
    (folder / missing).unlink()
    with pytest.raises(JobError, match=f"{missing} is missing"):
        read_job(folder)


def test_apps_with_different_studies_are_not_a_job(tmp_path, job):
    folder = write_job(job(), tmp_path / "x")
    path = folder / "app_supervised/config/study.yaml"
    path.write_text(path.read_text().replace("rounds: 1", "rounds: 2"))
    with pytest.raises(JobError, match="app_supervised/config/study.yaml differs from .*app_server/config/study.yaml"):
        read_job(folder)
    (folder / "meta.json").write_text(json.dumps({"deploy_map": {"app_server": ["server"], "app_supervised": ["b"]}}))
    path.write_bytes((folder / "app_server/config/study.yaml").read_bytes())
    with pytest.raises(JobError, match="site 'a' is not both there and in config/study.yaml"):
        read_job(folder)


def test_overlays_of_a_role_come_between_the_studys_and_the_methods(job_of, tmp_path):
    study = {
        "bundle": "covid_ct_segmentation",
        "sites": {"a": "supervised", "b": "unsupervised"},
        "rounds": 1,
        "steps": 1,
    }
    method = {"path": "fedmed.systems.covid_fssl.method.Consistency"}
    more = {"overlays": ["demo"], "role_overlays": {"supervised": ["one_cycle"]}}
    job = job_of(name="x", method=method, **study, **more)
    assert job.clients["a"]["overlays"] == ["demo", "one_cycle"]
    assert job.clients["b"]["overlays"][0] == "demo" and "one_cycle" not in job.clients["b"]["overlays"]
    more = {"overlays": ["demo"], "role_overlays": {"unsupervised": ["one_cicle"]}}
    misspelt = job_of(name="x", method=method, **study, **more)
    line = next(n for n, text in enumerate(misspelt.text.splitlines(), start=1) if text.startswith("role_overlays"))
    with pytest.raises(JobError, match=f"line {line}: role 'unsupervised': .* no overlay 'one_cicle'"):
        write_job(misspelt, tmp_path / "x")
