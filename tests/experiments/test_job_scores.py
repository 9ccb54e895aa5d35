"""What a run's folder says: complete, readable, every case told apart."""

import json

import pytest

from fedmed.errors import DataError
from fedmed.experiments.results import RUN, check_complete, read_result
from fedmed.jobs.specification import JobSpec

JOB = JobSpec("arm", {"a": "supervised", "b": "evaluate"}, 1, 1)


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
    check_complete(folder, JOB)
    write(folder, test=both, test_last={"a": {"n_cases": 1}})
    with pytest.raises(DataError, match="site 'b' was not scored"):
        check_complete(folder, JOB)
    # Without a decoder there is nothing to score a site with.
    check_complete(folder, JobSpec("arm", JOB.sites, 1, 1, sharing="block_6"))


def test_files_of_one_name_are_several_cases(folder):
    write(folder, test={"a": {"n_cases": 3}})
    cases = folder / "a" / RUN / "evaluation" / "cases.csv"
    cases.write_text("case,dice\nimage,0.5\nother,0.6\nimage,0.7\n")
    found = {score.case: score.dice for score in read_result(folder, "arm", 0)}
    assert found == {"image": 0.5, "other": 0.6, "image (2)": 0.7}


def test_a_damaged_result_names_the_folder_to_remove(folder):
    with pytest.raises(DataError, match=rf"result\.json: .*remove {folder}$"):
        read_result(folder, "arm", 0)
    write(folder, test={"a": {"n_cases": 1}})
    with pytest.raises(DataError, match=rf"cases\.csv: .*remove {folder}$"):
        read_result(folder, "arm", 0)
