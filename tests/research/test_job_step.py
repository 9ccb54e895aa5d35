"""Runs: made once, found again, shared between tables, honest about failure."""

import json
import os
from dataclasses import replace

import pytest
import yaml

from fedmed.data.datalist import load_datalist
from fedmed.errors import DataError, JobError
from fedmed.federation.client import Client
from fedmed.settings.site import load_site
from research.runner.experiment_data import load_data
from research.runner.federated_training import FederatedTraining
from research.runner.reproduction import scores_of
from research.runner.site_lists import pooled_site, site_for
from research.runner.stages import ArmWork, Place
from research.runner.work_queue import jobs_for, run_works
from tests.commands import fedmed

from .table_yaml import ROOM, SITE_TABLE

SMALL = {"batch_size": 1, "patch_size": [16, 16, 8], "window_size": [24, 24, 8], "pixdim": [16.0, 16.0, 40.0]}
DATA = {
    "path": f"{ROOM}.federation_data.FederationData",
    "bundle": "covid_ct_segmentation",
    "job": {"method": {"path": "fedmed.systems.covid_fssl.method.Consistency"}},
    "sites": {"site_1": "ct_north", "site_2": "ct_south"},
    "networks": {"default": ["demo"]},
    "budget": {"steps": 2, "warm_start": 1, "interval": 1, "validate": 1},
    "overrides": {"supervised": SMALL, "unsupervised": SMALL},
}
ONE = {"site_1": "supervised"}


def planner(folder):
    """Return a function: settings of an arm with one site -> its only step."""
    (folder / "tiny.yaml").write_text(yaml.safe_dump(DATA))
    data = load_data(folder / "tiny.yaml")

    def planned(seed=0, arm="one site", **settings):
        place = Place(arm, seed, data, ["site_1"], folder / "runs")
        (step,) = FederatedTraining(train=ONE, **settings).steps(place, None)
        return step

    return planned


@pytest.fixture
def make(tmp_path, tiny_site_configs):
    """``planner`` in the folder of a test."""
    return planner(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_site_configs):
    """``planner`` where the first run is done, and whether it was missing after another one had begun its folder."""
    planned = planner(tmp_path_factory.mktemp("finished"))
    made = planned()
    (made.path / "job").mkdir(parents=True)
    (made.path / "job" / "meta.json").write_text("{")
    missing = made.missing()
    made.make()
    return planned, missing


def run(step):
    step.make()
    return step.scores()


def test_a_run_is_made_once_and_leaves_every_case_of_both_models(finished):
    make, _ = finished
    made = make()
    scores = made.scores()
    lists = set(zip(scores["list"], scores["model"], strict=True))
    assert lists == {(a, b) for a in ("test", "valid") for b in ("selected", "last")}
    last = scores[(scores["list"] == "test") & (scores["model"] == "last")]
    assert (last["metric"] == "dice").sum() == 3
    assert set(scores["site"]) == {"ct_north"} and {"dice", "hd95"} < set(scores["metric"])
    assert scores.loc[scores["metric"] == "dice", "value"].between(0, 1).all()
    assert (made.path / "log.txt").is_file()
    written = (made.path / "made_of.json").stat().st_mtime_ns
    assert not make().missing() and run(make()).equals(scores)
    assert (made.path / "made_of.json").stat().st_mtime_ns == written


def test_an_unfinished_run_begins_again(finished):
    make, missing = finished
    assert missing and len(make().scores()) and not make().missing()


def test_a_run_that_was_stopped_goes_on_and_begins_again_with_other_images(make, monkeypatch):
    """Its budget is two rounds."""
    trained, train, made = [], Client.train, make()

    def stop_in_the_last_round(self, task):
        if task.round == task.total_rounds - 1 and trained.count("stop") < 2:
            trained.append("stop")
            raise KeyboardInterrupt
        trained.append(task.round)
        return train(self, task)

    monkeypatch.setattr(Client, "train", stop_in_the_last_round)
    with pytest.raises(KeyboardInterrupt):
        run(made)
    images = (made.path / "started_with.json").read_text()
    (made.path / "started_with.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        run(made)
    assert trained == [0, "stop", 0, "stop"] and (made.path / "started_with.json").read_text() == images
    assert made.missing() and len(run(made)) and not made.missing()
    assert trained == [0, "stop", 0, "stop", 1]
    assert not list(made.path.rglob("state")) and not list(made.path.rglob("before-*"))


def test_a_changed_image_or_other_code_makes_a_run_again_and_the_old_one_is_shown(finished, monkeypatch):
    make, _ = finished
    made = make()
    assert made.made_by_other_code() is None
    image = next(made.sites["ct_north"].data_root.rglob("*.nii.gz"))
    times = image.stat()
    try:
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
        assert made.missing()
    finally:
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not made.missing()
    monkeypatch.setattr("research.runner.job_step.package_digest", lambda: "another loss")
    again = make()
    assert again.missing() and again.path != made.path and again.made_by_other_code() == made.path
    assert make(seed=1).made_by_other_code() is None


def test_what_changes_after_a_run_got_its_name_is_no_result_of_that_name(make):
    made = make()
    with made.sites["ct_north"].datalist.open("a") as stream:
        stream.write("\n")
    with pytest.raises(JobError, match="changed after this command started; start it again"):
        run(made)
    assert made.missing()


def test_the_folder_tells_runs_apart_by_what_they_are_made_of(make):
    renamed = make(arm="same arm of another table")
    assert renamed.path == make().path
    others = [make(seed=1), make(overrides={"supervised": {"learning_rate": 0.1}})]
    assert len({each.path for each in [renamed, *others]}) == 3


def test_equal_arms_run_once_and_a_failing_one_stops_no_other(make, in_this_process):
    bad = make(overrides={"supervised": {**SMALL, "patch_size": [13, 13, 13]}})
    steps = {"one site": make(), "again": make(), "too small": bad}
    works = [ArmWork(arm, f"{arm}, seed 0", (step,)) for arm, step in steps.items()]
    failed = run_works(works, 1)
    assert len(in_this_process) == 2
    assert list(failed) == [bad.path] and failed[bad.path].startswith("too small, seed 0: ")
    assert "RuntimeError: The size of tensor" in (bad.path / "log.txt").read_text()
    assert set(scores_of(works[:2])["arm"]) == {"one site", "again"}


def test_as_many_at_a_time_as_cores_allow(make, monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    made = make()
    site = made.sites["ct_north"]

    def jobs(*sites):
        steps = [replace(made, sites={"a": each}) for each in sites]
        return jobs_for([ArmWork("a", "a, seed 0", (step,)) for step in steps])

    assert jobs(site) == 8
    assert jobs(site, replace(site, threads=3)) == 2
    assert jobs(replace(site, device="cuda:0")) == 1


def test_a_datalist_with_masks_that_is_missing_is_named(tiny_site_configs, tmp_path):
    config = load_site("ct_north")
    with pytest.raises(DataError, match=r"typo\.json does not exist; 'labelled'"):
        site_for(config, "supervised", tmp_path, "typo.json")
    assert site_for(config, "unsupervised", tmp_path, "typo.json").datalist.is_file()


def test_lists_of_each_role(tiny_site_configs, tmp_path):
    config = load_site("ct_north")
    lists = json.loads(config.datalist.read_text())
    lists["unlabeled"] = [{"image": lists["validation"][0]["image"], "patient": "p"}]
    (config.datalist.with_name("both.json")).write_text(json.dumps(lists))
    supervised = site_for(config, "supervised", tmp_path, "both.json")
    assert set(json.loads(supervised.datalist.read_text())) == {"training", "validation", "testing"}
    unsupervised = site_for(config, "unsupervised", tmp_path, "both.json")
    unlabelled = load_datalist(unsupervised.data_root, unsupervised.datalist, "unlabeled")
    assert len(unlabelled) == len(lists["training"]) + 1 and not any("label" in case for case in unlabelled)
    assert len(load_datalist(unsupervised.data_root, unsupervised.datalist, "testing")) == 3


def test_a_pool_has_the_same_files_under_the_same_paths(tiny_site_configs, tmp_path):
    """The cache of prepared cases goes by path: a pool must not prepare them again."""
    configs = [load_site(site) for site in ("ct_north", "ct_south")]
    pool = pooled_site(configs, ["training", "validation"], tmp_path)
    assert pool.site == "pool"
    for name in ("training", "validation"):
        images = [case["image"] for c in configs for case in load_datalist(c.data_root, c.datalist, name)]
        assert [case["image"] for case in load_datalist(pool.data_root, pool.datalist, name)] == images


def test_the_script_writes_a_table_and_says_what_is_wrong(tiny_site_configs, tmp_path, script, capsys, in_this_process):
    command = write_yaml(tmp_path, {"overrides": {"supervised": SMALL}})
    assert script(command) == 0
    folder = tmp_path / "out" / "tiny" / "small"
    assert {"scores.csv", "table.md", "table_last.md", "figure.png"} <= {path.name for path in folder.iterdir()}
    assert "one site" in (folder / "table.md").read_text()
    capsys.readouterr()
    assert script([*command, "--arms", "two"]) == 2
    assert "no arm 'two'" in capsys.readouterr().err
    assert script(["no_such_table"]) == 2 and "'no_such_table' is unknown; there are" in capsys.readouterr().err


def test_the_script_says_what_failed_when_no_arm_is_left(tiny_site_configs, tmp_path, script, capsys, in_this_process):
    command = write_yaml(tmp_path, {"overrides": {"supervised": {**SMALL, "patch_size": [13, 13, 13]}}})
    assert script([*command, "--seeds", "0,1"]) == 2
    said = capsys.readouterr().err
    assert "error: one site, seed 0: " in said and "error: one site, seed 1: " in said and "log.txt" in said
    assert "every arm has a failed run" in said and not (tmp_path / "out" / "tiny").exists()


def test_the_script_refuses_what_would_count_twice_or_cannot_be_written(tiny_site_configs, tmp_path, script, capsys):
    command = write_yaml(tmp_path, {})
    assert script([*command, "--seeds", "0,0"]) == 2
    assert "a seed counts once" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "small.yaml").write_text((tmp_path / "small.yaml").read_text())
    assert script([str(tmp_path / "other" / "small.yaml"), *command]) == 2
    assert "another table is called 'small' too" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert script([*command, "--out", str(tmp_path / "file")]) == 2
    assert "Not a directory" in (said := capsys.readouterr().err) and "choose another place" in said
    assert script([*command, "--jobs", "0"]) == 2


def write_yaml(folder, data):
    """Data and a table of one arm; the command line for them."""
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**DATA, "overrides": {}, **data}))
    (folder / "small.yaml").write_text(
        yaml.safe_dump(SITE_TABLE | {"arms": {"one site": {"training": {"train": ONE}}}})
    )
    return [str(folder / "small.yaml"), "--data", str(folder / "tiny.yaml"), "--out", str(folder / "out")]


@pytest.fixture
def script():
    return fedmed("research", "run")
