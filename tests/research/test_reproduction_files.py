from dataclasses import replace

import pytest
import yaml

from fedmed.errors import DataError
from research.runner.experiment_table import load_table, only
from research.runner.reproduction import write_table_files
from research.runner.score_table import joined, score_frame

from .table_yaml import ROOM, SITE_TABLE

SITES = {"site_1": "site_1"}
CLAIM = {"id": 1, "text": "b wins", "holds": [{"better": "b", "worse": "a", "sites": ["site_1"]}]}


@pytest.fixture
def table(tmp_path):
    chain = {"training": {**SITE_TABLE["chain"]["training"], "train": {"site_1": "supervised"}}}
    content = {**SITE_TABLE, "chain": chain, "arms": {"a": {}, "b": {"group": "G"}}, "claims": [CLAIM]}
    content["claim_kind"] = f"{ROOM}.case_claims.BetterByCases"
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(content))
    return load_table(tmp_path / "t.yaml")


def write(folder, table, *frames):
    return write_table_files(folder, table, "demo", SITES, joined(frames))


def test_only_what_there_is(tmp_path, table, runs):
    paths = write(tmp_path / "o", replace(table, claims=[]), runs("a", [[0.5]], list="valid"))
    assert [path.name for path in paths] == ["table_last.md", "table_last.csv"]
    write(tmp_path / "o", table, runs("a", [[0.5]]))
    assert "| 1 | b wins | not run |" in (tmp_path / "o" / "claims.md").read_text("utf-8")
    assert "# T (demo)" in (tmp_path / "o" / "table_last.md").read_text("utf-8")


def test_what_other_arms_left_does_not_stay_beside_the_new(tmp_path, table, runs):
    folder = tmp_path / "o"
    write(folder, table, runs("a", [[0.5]]), runs("b", [[0.6]]))
    (folder / "notes.txt").touch()
    written = write(folder, replace(table, claims=[]), runs("a", [[0.5]], model="selected"))
    assert {path.name for path in folder.iterdir()} == {path.name for path in written} | {"notes.txt"}


def test_unpaired_cases_write_nothing(tmp_path, table, runs):
    with pytest.raises(DataError, match="lacks case 'case_01'"):
        write(tmp_path / "o", table, runs("a", [[0.5]]), runs("b", [[0.5, 0.6]]))
    assert not (tmp_path / "o").exists()


def test_a_result_of_each_node_is_a_row_below_its_arm(tmp_path, table, runs):
    frames = [runs(name, [[0.5]]) for name in ("a", "b", "b: north", "b: south")]
    write(tmp_path / "o", table, *frames)
    text = (tmp_path / "o" / "table_last.md").read_text("utf-8")
    names = [line.split(" | ")[0].strip("| ") for line in text.splitlines()[6:]]
    assert names == ["a", "*G*", "b", "b: north", "b: south"]
    assert only(table, ["a"]).arms[0].name == "a"


def test_any_score_of_single_units_can_be_shown(tmp_path, table):
    """A video's share of right frames is no Dice, and a unit no case."""
    kind = table.scores["dice"].model_copy(update={"metric": "frames", "label": "share of frames", "unit": "video"})
    rows = [{"unit": f"v{i}", "value": 0.5 + 0.1 * i} for i in range(3)]
    keys = {"arm": "a", "seed": 0, "site": "site_1", "list": "test", "model": "last", "metric": "frames"}
    write(tmp_path / "o", replace(table, scores={"frames": kind}), score_frame(rows, **keys))
    text = (tmp_path / "o" / "table_last.md").read_text("utf-8")
    assert "share of frames, model of the last round; one seed." in text and "site_1 test (3 videos)" in text
    assert (tmp_path / "o" / "table_last.csv").read_text().splitlines()[0].endswith("frames_mean,frames_std")
