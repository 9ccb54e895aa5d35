"""Scores of a run's folder: complete, readable, every case told apart."""

import json

import pytest

from fedmed.errors import DataError
from fedmed.recovery.interrupted_workspace import records
from research.runner.experiment_data import stage_job
from research.runner.job_scores import RUN, read_job_scores, read_rounds
from research.runner.job_step import JobStep
from research.runner.round_history import read_histories
from research.runner.score_table import joined

SITES = {"a": "supervised", "b": "evaluate"}


def step(folder, **more):
    method = {"path": "fedmed.systems.covid_fssl.method.Consistency"}
    given = {"bundle": "covid_ct_segmentation", "method": method, **more}
    return JobStep(stage_job("arm", given, name="arm", sites=SITES, rounds=1, steps=1), {}, folder)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "server" / RUN).mkdir(parents=True)
    (tmp_path / "a" / RUN / "evaluation").mkdir(parents=True)
    return tmp_path


def write(folder, **result):
    result = {"validation": {}, "validation_last": {}, "test": {}, "test_last": {}, **result}
    (folder / "server" / RUN / "result.json").write_text(json.dumps(result))


def test_a_site_without_a_score_is_no_finished_run(folder):
    both = {"a": {"n_cases": 1}, "b": {"n_cases": 0}}
    write(folder, test=both, test_last=both)
    step(folder).conclude(None)
    write(folder, test=both, test_last={"a": {"n_cases": 1}})
    with pytest.raises(DataError, match="site 'b' was not scored"):
        step(folder).conclude(None)
    # Without a decoder there is nothing to score a site with.
    step(folder, sharing="block_6").conclude(None)


def test_files_of_one_name_are_several_cases(folder):
    write(folder, test={"a": {"n_cases": 3}})
    cases = folder / "a" / RUN / "evaluation" / "cases.csv"
    cases.write_text("case,dice\nimage,0.5\nother,0.6\nimage,0.7\n")
    rows = step(folder).scores()
    assert dict(zip(rows["unit"], rows["value"], strict=True)) == {"image": 0.5, "other": 0.6, "image (2)": 0.7}
    assert set(rows["metric"]) == {"dice"} and set(rows["list"]) == {"test"} and set(rows["site"]) == {"a"}


def test_a_case_has_the_patient_that_the_datalist_names(folder):
    write(folder, test={"a": {"n_cases": 3}})
    (folder / "a" / RUN / "evaluation" / "cases.csv").write_text("case,dice\nx,0.5\ny,0.6\nz,0.7\n")
    rows = read_job_scores(folder, 0, "dice", {"a": ["p1", "p1", ""]})
    assert dict(zip(rows["unit"], rows["patient"], strict=True)) == {"x": "p1", "y": "p1", "z": "z"}
    unknown = read_job_scores(folder, 0, "dice", {"a": ["p1"]})
    assert list(unknown["patient"]) == ["x", "y", "z"]


def test_every_number_of_a_case_is_a_metric(folder):
    write(folder, test={"a": {"n_cases": 1}}, validation={"a": 0.25})
    cases = folder / "a" / RUN / "evaluation" / "cases.csv"
    cases.write_text("case,dice,hd95,reader\n01,0.5,12.5,x\n")
    values = {(row.list, row.unit, row.metric): row.value for row in step(folder).scores().itertuples()}
    assert values == {("valid", "mean", "dice"): 0.25, ("test", "01", "dice"): 0.5, ("test", "01", "hd95"): 12.5}


def test_rounds_are_read_in_the_order_of_the_nodes(tmp_path):
    path = records(tmp_path) / "rounds.jsonl"
    path.parent.mkdir(parents=True)
    line = {"coefficients": {"b": 0.25, "a": 0.75}, "extras": {"a": {"rsa": 0.9, "mu": [1]}, "b": {"rsa": 0.7}}}
    failed = {"coefficients": {}, "extras": {}}
    path.write_text("\n".join(map(json.dumps, [line, failed, line])))

    def history(value):
        frame = joined([read_rounds(tmp_path, 0, {"b": 10, "a": 30}).assign(arm="x")])
        return read_histories(frame, "x", value)[0]

    rounds = history("rsa")
    assert rounds.shares.to_dict() == {"b": 0.25, "a": 0.75} and list(rounds.shares.index) == ["b", "a"]
    assert rounds.weights.tolist() == [[0.25, 0.75]] * 2 and rounds.reported.tolist() == [[0.7, 0.9]] * 2
    assert history(None).reported is None and history("mu").reported is None
    path.write_text("{")
    with pytest.raises(DataError, match=f"remove {tmp_path}"):
        read_rounds(tmp_path, 0, {"a": 1})


def test_a_damaged_result_names_the_folder_to_remove(folder):
    with pytest.raises(DataError, match=rf"result\.json: .*remove {folder}$"):
        step(folder).scores()
    write(folder, test={"a": {"n_cases": 1}})
    with pytest.raises(DataError, match=rf"cases\.csv: .*remove {folder}$"):
        step(folder).scores()
