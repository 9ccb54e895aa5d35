"""The jobs that FedCy is compared with say what their names promise, and each runs a round on small frames."""

import json
from pathlib import Path

import pytest
import yaml

from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job

JOBS = Path(__file__).resolve().parents[2] / "jobs"
OTHERS = ("lap_bay", "lap_cliff")
RECORDS = "server/simulate_job/fedmed"


def roles(labelled, others):
    return {"lap_harbor": labelled, "lap_isle": "evaluate", **dict.fromkeys(OTHERS, others)}


@pytest.fixture
def labels_everywhere(tiny_site_configs, tmp_path, monkeypatch):
    """The tiny hospitals, each with a table for every video."""
    folder = tmp_path / "labelled_sites"
    folder.mkdir()
    for path in tiny_site_configs.glob("lap_*.yaml"):
        values = yaml.safe_load(path.read_text()) | {"datalist": "datalist_labelled.json"}
        (folder / path.name).write_text(yaml.safe_dump(values))
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(folder))


@pytest.fixture
def one_round(tiny_site_configs, tiny_phases, tmp_path):
    """Return a function: one round of a job on small frames; the server, the round's record and the result."""

    def run(name, **changes):
        job = read_job(JOBS / name)
        frames = {**tiny_phases["supervised"], "learning_rate": 1e-3}
        overrides = {role: {**frames, **job.study.overrides.get(role, {})} for role in set(job.study.sites.values())}
        changed = job.changed({"rounds": 1, "overrides": overrides, **changes})
        server = run_job(write_job(changed, tmp_path / "job"), tmp_path / "ws")
        (line,) = map(json.loads, (tmp_path / "ws" / RECORDS / "rounds.jsonl").read_text().splitlines())
        return server, line, json.loads((tmp_path / "ws" / RECORDS / "result.json").read_text())

    return run


def scored(result):
    return {site for site, numbers in result["test"].items() if 0 <= numbers.get("f1_mean", -1) <= 1}


@pytest.mark.parametrize(("name", "others"), [("phases_fullsup", "evaluate"), ("phases_fedavg", "supervised")])
def test_labels_at_one_hospital_and_at_all(name, others):
    job = read_job(JOBS / name)
    assert job.controller["sites"] == dict(sorted(roles("supervised", others).items())) and job.study.epochs == 1
    assert {tuple(args["overlays"]) for args in job.clients.values()} == {("demo",)}, "cross-entropy alone"
    assert job.aggregator["weighting"] == "samples"


def test_a_round_with_the_labels_of_one_hospital(one_round):
    _, line, result = one_round("phases_fullsup")
    assert line["coefficients"] == {"lap_harbor": 1.0} and scored(result) == {*OTHERS, "lap_harbor", "lap_isle"}


def test_a_round_with_labels_everywhere(labels_everywhere, one_round):
    server, line, result = one_round("phases_fedavg")
    frames = {site: own["n_samples"] for site, own in line["sites"].items()}
    assert line["coefficients"] == pytest.approx({site: n / sum(frames.values()) for site, n in frames.items()})
    assert line["coefficients"].keys() == {*OTHERS, "lap_harbor"} and not line["refused"]
    assert scored(result) == {*OTHERS, "lap_harbor", "lap_isle"}


def test_the_made_up_hospitals_with_all_labels_are_the_same_ones():
    configs = JOBS.parent / "site_configs"
    paths = sorted((configs / "demo_labelled").glob("*.yaml"))
    assert [path.stem for path in paths] == ["lap_bay", "lap_cliff", "lap_dune", "lap_fjord"], "those without labels"
    for path in paths:
        plain, labelled = (yaml.safe_load((configs / kind / path.name).read_text()) for kind in ("demo", "demo_labelled"))
        assert labelled == {**plain, "datalist": "datalist_labelled.json"}
