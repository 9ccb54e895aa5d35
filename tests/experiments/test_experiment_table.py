"""Tables of pre-training arms, read from YAML."""

from pathlib import Path

import pytest
import yaml

from fedmed.errors import JobError
from fedmed.experiments.pretraining.arms import load_table, only
from fedmed.experiments.pretraining.claims import read_claims

CHECKOUT = Path(__file__).resolve().parents[3]
TABLE = {
    "experiment": "pretraining",
    "title": "T",
    "seeds": [0, 1],
    "protocols": {"linear": {"fractions": [0.1, 1]}},
    "arms": {"a": {"method": "fedavg"}, "b": {"method": "random"}},
}


def read(tmp_path, **changes):
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump({**TABLE, **changes}))
    return load_table(path)


def test_defaults_apply_to_arms_that_do_not_say_otherwise(tmp_path):
    table = read(tmp_path, defaults={"split": 2}, figure=["a", "b"])
    assert [arm.split for arm in table.arms] == [2, 2] and table.protocols[0].draws == 1
    assert only(table, ["b"]).figure == ["b"]
    with pytest.raises(JobError, match="no arm 'c'"):
        only(table, ["c"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arms": {"a": {"method": "moco"}}}, "arm 'a'.*'moco'"),
        ({"arms": {"a": {"method": "fedavg", "split": 3}}}, "1 or 2"),
        ({"arms": {"a": {"method": "fedavg", "sizes": [0, 1]}}}, "above 0"),
        ({"arms": {"a": {"method": "fedavg", "skew": ["ill"]}}}, "healthy and diseased"),
        ({"arms": {"a": {"method": "fedavg", "colour": 1}}}, "unknown key 'colour'"),
        ({"protocols": {"knn": {"fractions": [1]}}}, "'knn'"),
        ({"protocols": {"linear": {"fractions": [1, 1]}}}, "different shares"),
        ({"protocols": {}}, "at least one"),
        ({"arms": {"a": {"method": "grey_levels"}}, "protocols": {"finetune": {"fractions": [1]}}}, "to fine-tune"),
        ({"figure": ["z"]}, "some of the arms"),
        ({"seeds": [0, 0]}, "different whole numbers"),
        ({"claim": []}, "claim"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, words):
    with pytest.raises(JobError, match=words):
        read(tmp_path, **changes)


@pytest.mark.parametrize("name", ["table2", "table3", "table4", "table5", "views"])
def test_the_tables_that_come_along_can_be_read(name):
    table = load_table(CHECKOUT / "experiments" / f"fedmoco_{name}.yaml")
    assert read_claims(table.claims, [arm.name for arm in table.arms]) and len(table.seeds) >= 3
