"""Runs: made once, found again, shared between tables, honest about failure."""

import json
import os
from dataclasses import replace

import pytest
import yaml
from fedmed.experiments.federation import Budget, Federation
from fedmed.experiments.pool import jobs_for, run_all
from fedmed.experiments.runs import finished, prepare, run
from fedmed.experiments.sites import Cases, pooled_site, site_for
from fedmed.experiments.table import Arm, Table

from fedmed.data.datalist import load_datalist
from fedmed.errors import DataError, JobError
from fedmed.federation.client import Client
from fedmed.settings.site import load_site

SMALL = {"batch_size": 1, "patch_size": [16, 16, 16], "window_size": [64, 64, 16], "pixdim": [5.5, 5.5, 12.0]}
FEDERATION = Federation(
    "tiny",
    {"site_1": "ct_north", "site_2": "ct_south"},
    {"default": ["demo"]},
    Budget(2, 1, 1, 1),
    overrides={"supervised": SMALL, "unsupervised": SMALL},
)
ARM = Arm("one site", train={"site_1": "supervised"})
TABLE = Table("t", "T", [0], ["site_1"], [ARM])


@pytest.fixture
def make(tmp_path, tiny_site_configs):
    return lambda arm=ARM, table=TABLE, seed=0: prepare(arm, table, FEDERATION, seed, tmp_path / "runs")


def test_a_run_is_made_once_and_leaves_every_case_of_both_models(make):
    made = make()
    scores = run(made)
    assert {(s.list, s.model) for s in scores} == {(a, b) for a in ("test", "valid") for b in ("selected", "last")}
    assert len([s for s in scores if s.list == "test" and s.model == "last"]) == 3
    assert all(s.arm == "one site" and s.site == "ct_north" and 0 <= s.dice <= 1 for s in scores)
    assert "fedmed" not in (made.folder / "log.txt").read_text() or (made.folder / "log.txt").stat().st_size
    written = (made.folder / "made_of.json").stat().st_mtime_ns
    assert run(make()) == scores and (made.folder / "made_of.json").stat().st_mtime_ns == written


def test_an_unfinished_run_begins_again(make):
    made = make()
    (made.folder / "job").mkdir(parents=True)
    (made.folder / "job" / "meta.json").write_text("{")
    assert not finished(made) and run(made) and finished(made)


@pytest.mark.parametrize("changed", [False, True], ids=["goes on", "begins again with other images"])
def test_a_run_that_was_stopped_in_the_middle(make, monkeypatch, changed):
    """Its budget is two rounds."""
    trained, train, made = [], Client.train, make()

    def stop_in_the_last_round(self, task):
        if task.round == task.total_rounds - 1 and not trained.count("stop"):
            trained.append("stop")
            raise KeyboardInterrupt
        trained.append(task.round)
        return train(self, task)

    monkeypatch.setattr(Client, "train", stop_in_the_last_round)
    with pytest.raises(KeyboardInterrupt):
        run(made)
    if changed:
        (made.folder / "started_with.json").write_text("{}")
    assert not finished(made) and run(made) and finished(made)
    assert trained == ([0, "stop", 0, 1] if changed else [0, "stop", 1])
    assert not list(made.folder.rglob("state")) and not list(made.folder.rglob("before-*"))


def test_a_changed_image_makes_a_run_again(make):
    made = make()
    run(made)
    image = next(made.sites["ct_north"].data_root.rglob("*.nii.gz"))
    times = image.stat()
    try:
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
        assert not finished(made)
    finally:
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert finished(made)


def test_what_changes_after_a_run_got_its_name_is_no_result_of_that_name(make):
    made = make()
    with made.sites["ct_north"].datalist.open("a") as stream:
        stream.write("\n")
    with pytest.raises(JobError, match="changed after this command started; start it again"):
        run(made)
    assert not finished(made)


def test_the_folder_tells_runs_apart_by_what_they_are_made_of(make, tmp_path):
    renamed = make(replace(ARM, name="same arm of another table", group="g", x=2.0))
    assert renamed.folder == make().folder
    others = [make(seed=1), make(replace(ARM, overrides={"supervised": {"learning_rate": 0.1}}))]
    assert len({each.folder for each in [renamed, *others]}) == 3


def test_equal_arms_run_once_and_a_failing_one_stops_no_other(make):
    diverging = replace(ARM, name="diverging", overrides={"supervised": {"learning_rate": 1e30}})
    made = [make(), make(replace(ARM, name="again")), make(diverging)]
    outcome = run_all(made, 1)
    assert list(outcome.scores) == [made[0].folder] and list(outcome.failed) == [made[2].folder]
    assert "diverging, seed 0: " in str(outcome.failed[made[2].folder])
    assert "site 'ct_north'" in (made[2].folder / "log.txt").read_text()
    assert {score.arm for score in outcome.scores_of(made[1])} == {"again"}


def test_as_many_at_a_time_as_cores_allow(make, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(8))
    made = make()
    site = made.sites["ct_north"]
    assert jobs_for([made]) == 8
    assert jobs_for([made, replace(made, sites={"a": replace(site, threads=3)})]) == 2
    assert jobs_for([replace(made, sites={"a": replace(site, device="cuda:0")})]) == 1


def test_a_datalist_with_masks_that_is_missing_is_named(tiny_site_configs, tmp_path):
    cases = Cases(load_site("ct_north"), "typo.json")
    with pytest.raises(DataError, match=r"typo\.json does not exist; 'labelled'"):
        site_for(cases, "supervised", tmp_path)
    assert site_for(cases, "unsupervised", tmp_path).datalist.is_file()


def test_lists_of_each_role(tiny_site_configs, tmp_path):
    config = load_site("ct_north")
    lists = json.loads(config.datalist.read_text())
    lists["unlabeled"] = [{"image": lists["validation"][0]["image"], "patient": "p"}]
    (config.datalist.with_name("both.json")).write_text(json.dumps(lists))
    cases = Cases(config, "both.json")
    supervised = site_for(cases, "supervised", tmp_path)
    assert set(json.loads(supervised.datalist.read_text())) == {"training", "validation", "testing"}
    unsupervised = site_for(cases, "unsupervised", tmp_path)
    found = load_datalist(unsupervised.data_root, unsupervised.datalist, "unlabeled")
    assert len(found) == len(lists["training"]) + 1 and not any("label" in case for case in found)
    assert len(load_datalist(unsupervised.data_root, unsupervised.datalist, "testing")) == 3


def test_a_pool_has_the_same_files_under_the_same_paths(tiny_site_configs, tmp_path):
    """The cache of prepared cases goes by path: a pool must not prepare them again."""
    configs = [load_site(site) for site in ("ct_north", "ct_south")]
    pool = pooled_site([Cases(config) for config in configs], tmp_path)
    assert pool.site == "pool"
    for name in ("training", "validation"):
        own = [case["image"] for c in configs for case in load_datalist(c.data_root, c.datalist, name)]
        assert [case["image"] for case in load_datalist(pool.data_root, pool.datalist, name)] == own


def test_the_script_writes_a_table_and_says_what_is_wrong(tiny_site_configs, tmp_path, script, capsys):
    command = write_yaml(tmp_path, {"overrides": {"supervised": SMALL}})
    assert script.main(command) == 0
    folder = tmp_path / "out" / "tiny" / "small"
    assert {"scores.csv", "table.md", "table_last.md", "figure.png"} <= {path.name for path in folder.iterdir()}
    assert "one site" in (folder / "table.md").read_text()
    capsys.readouterr()
    assert script.main([*command, "--arms", "two"]) == 2
    assert "no arm 'two'" in capsys.readouterr().err
    assert script.main(["no_such_table"]) == 2 and "no_such_table.yaml" in capsys.readouterr().err


def test_the_script_says_what_failed_when_no_arm_is_left(tiny_site_configs, tmp_path, script, capsys):
    command = write_yaml(tmp_path, {"overrides": {"supervised": {**SMALL, "learning_rate": 1e30}}})
    assert script.main(command) == 2
    said = capsys.readouterr().err
    assert "error: one site, seed 0: " in said and "log.txt" in said
    assert "every arm has a failed run" in said and not (tmp_path / "out" / "tiny").exists()


def test_the_script_refuses_what_would_count_twice_or_cannot_be_written(tiny_site_configs, tmp_path, script, capsys):
    command = write_yaml(tmp_path, {})
    assert script.main([*command, "--seeds", "0", "0"]) == 2
    assert "'seeds' is [0, 0]" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "small.yaml").write_text((tmp_path / "small.yaml").read_text())
    assert script.main([str(tmp_path / "other" / "small.yaml"), *command]) == 2
    assert "another table is called 'small' too" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert script.main([*command, "--out", str(tmp_path / "file")]) == 2
    assert "Not a directory" in (said := capsys.readouterr().err) and "--out" in said
    with pytest.raises(SystemExit):
        script.main([*command, "--jobs", "0"])


def write_yaml(folder, federation):
    """A federation and a table of one arm; the command line for them."""
    data = {"sites": dict(FEDERATION.sites), "networks": {"default": ["demo"]}, "budget": vars(FEDERATION.budget)}
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**data, **federation}))
    arms = {"one site": {"train": {"site_1": "supervised"}}}
    (folder / "small.yaml").write_text(yaml.safe_dump({"title": "T", "seeds": [0], "test": ["site_1"], "arms": arms}))
    return [str(folder / "small.yaml"), "--data", str(folder / "tiny.yaml"), "--out", str(folder / "out")]


@pytest.fixture
def script(load_script):
    return load_script("reproduce")
