"""The jobs of the repository say what their names promise."""

import json

import pytest
import yaml

from fedmed.errors import JobError
from fedmed.jobs.job_folder import read_job, write_job
from tests.shipped import JOBS, shipped

CT_JOBS = ["covid_agreement", "covid_agreement_paper", "covid_fssl", "covid_fssl_paper", "covid_fssl_partial"]
SIZE = {"encoder", "name", "overlays", "role_overlays", "rounds", "steps", "warm_start"}
# In the demo's setting of the paper's family, of which the worst-off hospital loses least.
LOSES_LEAST = {"consistency_loss", "consistency_scope", "final_div_factor", "pct_start"}


def texts(job):
    return {path.relative_to(JOBS / job).as_posix(): path.read_text() for path in (JOBS / job).rglob("*.json")}


@pytest.mark.parametrize(
    ("name", "local", "overlays"), [("covid_agreement", set(), []), ("covid_fssl", LOSES_LEAST, ["one_cycle"])]
)
def test_paper_job_differs_only_in_overlay_rounds_and_steps(name, local, overlays):
    demo, paper = read_job(shipped(name)), read_job(shipped(f"{name}_paper"))
    ours, theirs = demo.study.model_dump(), paper.study.model_dump()
    assert {key for key in ours if ours[key] != theirs[key]} <= SIZE | ({"overrides"} if local else set())
    assert demo.rule == paper.rule
    for role in set(demo.study.sites.values()):
        a, b = demo.overrides(role), paper.overrides(role)
        assert {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)} <= local
    assert demo.overlays(demo.model_role) == ["demo", *paper.overlays(paper.model_role), *overlays]
    assert (paper.study.rounds, paper.study.steps) == (50, 400)
    assert texts(name).keys() == texts(f"{name}_paper").keys()


@pytest.mark.parametrize("name", CT_JOBS)
def test_job_is_complete(name, tmp_path):
    job = read_job(shipped(name))
    roles = sorted(map(job.role, job.study.sites))
    assert roles == ["evaluate", "supervised", "supervised", "unsupervised"]
    folder = write_job(job, tmp_path / name)
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["min_clients"] == 3
    for app in meta["deploy_map"]:
        assert (folder / app / "custom" / "README.md").is_file()
    assert {job.group(role) for role in roles} == {job.study.sharing}
    assert {job.bundle(role).name for role in roles} == {job.study.bundle}


def test_partial_job_keeps_the_decoder_and_asks_a_demo_site_that_allows_it(tmp_path):
    job = read_job(shipped("covid_fssl_partial"))
    folder = write_job(job, tmp_path / "job")
    assert job.group("supervised") == job.study.sharing == "block_6" and job.study.release_from == "ct_north"
    executors = {
        role: json.loads((folder / f"app_{role}/config/config_fed_client.json").read_text())
        for role in ("supervised", "unsupervised", "evaluate")
    }
    requested = {role: "release" in config["executors"][0]["tasks"] for role, config in executors.items()}
    assert requested == {"supervised": True, "unsupervised": False, "evaluate": False}
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
    assert read_job(tmp_path / "x").study.rounds == 2


def test_settings_that_are_left_alone_are_not_written(tmp_path, job):
    plain = read_job(write_job(job(rounds=2), tmp_path / "x"))
    assert not {"validate_every", "optimizer_state"} & plain.recorded.keys()
    made = read_job(write_job(job(rounds=2, validate_every=2, optimizer_state="reset"), tmp_path / "y"))
    assert made.study.validate_every == 2 and made.study.optimizer_state == "reset"
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
    assert job.overlays(job.role("a")) == ["demo", "one_cycle"]
    assert job.overlays(job.role("b"))[0] == "demo" and "one_cycle" not in job.overlays(job.role("b"))
    more = {"overlays": ["demo"], "role_overlays": {"unsupervised": ["one_cicle"]}}
    misspelt = job_of(name="x", method=method, **study, **more)
    line = next(n for n, text in enumerate(misspelt.text.splitlines(), start=1) if text.startswith("role_overlays"))
    with pytest.raises(JobError, match=f"line {line}: role 'unsupervised': .* no overlay 'one_cicle'"):
        write_job(misspelt, tmp_path / "x")
