from dataclasses import replace

import pytest

from fedmed.errors import DataError, JobError
from fedmed.experiments.federation import Budget, Federation
from fedmed.experiments.info import ArmInfo, TableInfo
from fedmed.experiments.outputs import info_of, write_outputs
from fedmed.experiments.scores import read_scores, write_scores
from fedmed.experiments.table import Arm, Table

CLAIMS = [{"id": 1, "text": "b wins", "holds": [{"better": "b", "worse": "a", "sites": ["site_1"]}]}]


def info(**changes):
    return TableInfo(
        **{"name": "t", "title": "T", "arms": [ArmInfo("a"), ArmInfo("b")], "sites": ["site_1"], **changes}
    )


def test_all_is_made_from_the_file_of_scores(tmp_path, runs):
    low, high = [[0.1 * i for i in range(7)]] * 2, [[0.1 * i + 0.05 for i in range(7)]] * 2
    scores = [s for model in ("selected", "last") for s in runs("a", low, model=model) + runs("b", high, model=model)]
    write_scores(tmp_path / "scores.csv", scores)
    paths = write_outputs(tmp_path / "t", info(claims=CLAIMS), read_scores(tmp_path / "scores.csv"))
    assert [path.name for path in paths] == [
        *("table.md", "table.csv", "figure.png", "table_last.md", "table_last.csv", "figure_last.png"),
        *("claims.md", "comparisons.csv"),
    ]
    assert "| 1 | b wins | ✓ |" in (tmp_path / "t" / "claims.md").read_text("utf-8")
    assert (tmp_path / "t" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "t" / "figure.png").stat().st_size > 10_000


def test_only_what_there_is(tmp_path, runs):
    paths = write_outputs(tmp_path, info(), runs("a", [[0.5]], list="valid"))
    assert [path.name for path in paths] == ["table_last.md", "table_last.csv"]
    paths = write_outputs(tmp_path, info(claims=CLAIMS), runs("a", [[0.5]]))
    assert "| 1 | b wins | not run |" in paths[-2].read_text("utf-8")


def test_what_other_arms_left_does_not_stay_beside_the_new(tmp_path, runs):
    write_outputs(tmp_path, info(claims=CLAIMS), runs("a", [[0.5]]) + runs("b", [[0.6]], model="last"))
    (tmp_path / "notes.txt").touch()
    written = write_outputs(tmp_path, info(), runs("a", [[0.5]], model="selected"))
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in written} | {"notes.txt"}


def test_unpaired_cases_write_nothing(tmp_path, runs):
    with pytest.raises(DataError, match="lacks case 'case_01'"):
        write_outputs(tmp_path, info(claims=CLAIMS), runs("a", [[0.5]]) + runs("b", [[0.5, 0.6]]))
    assert not list(tmp_path.iterdir())


def test_a_table_on_a_federation_has_its_site_names():
    table = Table("t", "T", [0], ["site_1"], [Arm("a", {"site_1": "supervised"}), Arm("b", {"site_1": "supervised"})])
    table = replace(table, claims=CLAIMS, baseline="a")
    federation = Federation("demo", {"site_1": "image_1"}, {"default": []}, Budget(4, 0, 2, 2))
    found = info_of(table, federation)
    with pytest.raises(JobError, match="table 't' tests the site 'site_9'.*'demo'.*has: site_1"):
        info_of(replace(table, test=["site_9"]), federation)
    assert (found.title, found.sites, found.baseline) == ("T (demo)", ["image_1"], "a")
    assert found.arms == [ArmInfo("a"), ArmInfo("b")]
    assert found.claims[0]["holds"][0]["sites"] == ["image_1"]
    assert CLAIMS[0]["holds"][0]["sites"] == ["site_1"]
