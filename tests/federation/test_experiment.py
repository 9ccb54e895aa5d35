"""Tables of arms and seeds: resumable, and honest about what changed."""

import json
from dataclasses import replace

import pytest

from fedmed.errors import JobError
from fedmed.federation.experiment import Arm, load_experiment, rows, run_arm
from fedmed.federation.job import read_job
from fedmed.federation.site import load_site

SITES = {"ct_north": "supervised"}


@pytest.fixture
def arm(tiny_job):
    overrides = {"supervised": read_job(tiny_job("o")).clients["ct_north"]["overrides"]}
    return Arm("one site", {"sites": SITES, "rounds": 1, "steps": 1, "overlays": ["demo"], "overrides": overrides})


def test_a_finished_run_is_kept_and_a_changed_or_broken_one_is_not(arm, tmp_path):
    first = run_arm(arm, 0, tmp_path)
    result = next(tmp_path.rglob("result.json"))
    written = result.stat().st_mtime_ns
    assert run_arm(arm, 0, tmp_path) == first and result.stat().st_mtime_ns == written
    result.unlink()  # as if it had been stopped
    again = run_arm(arm, 0, tmp_path)
    assert again["test"] == first["test"]
    changed = Arm(arm.name, {**arm.job, "evaluate_last": True})
    assert "test_last" in run_arm(changed, 0, tmp_path)
    datalist = load_site("ct_north").datalist
    other = datalist.with_name("other.json")
    other.write_text(datalist.read_text().replace('"testing"', '"tested"'))
    assert (
        run_arm(replace(changed, datalists={"ct_north": "other.json"}), 0, tmp_path)["test"]["ct_north"]["n_cases"] == 0
    )


def test_mean_and_sample_deviation_over_seeds():
    def result(dice):
        return {"test": {"a": {"dice_mean": dice, "dice_std": 0.3, "n_cases": 4}, "b": {"n_cases": 0}}}

    table = rows({("x", 0): result(0.5), ("x", 1): result(0.7), ("y", 0): result(0.1)})
    assert [(row["arm"], row["site"], row["n_seeds"]) for row in table] == [("x", "a", 2), ("y", "a", 1)]
    assert table[0]["dice_mean"] == pytest.approx(0.6) and table[0]["dice_std"] == pytest.approx(0.02**0.5)
    assert rows({("x", 0): result(0.5)}, "test_last") == []


def test_shared_settings_and_own_ones(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(
        json.dumps({"seeds": [1], "job": {"rounds": 2}, "arms": {"a": {"rounds": 3, "datalists": {"s": "d"}}}})
    )
    experiment = load_experiment(path)
    assert experiment.arms == [Arm("a", {"rounds": 3}, {"s": "d"})] and experiment.seeds == [1]


@pytest.mark.parametrize("text", ["", "seeds: [0]", "arms: {a: {}}", "seeds: [0\n", "[1, 2]"])
def test_what_is_no_experiment_is_named(tmp_path, text):
    path = tmp_path / "e.yaml"
    path.write_text(text)
    with pytest.raises(JobError, match="e.yaml is no experiment"):
        load_experiment(path)
