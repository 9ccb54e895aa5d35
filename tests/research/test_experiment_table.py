"""Tables read from YAML."""

import pytest
import yaml

from fedmed.errors import JobError
from research.runner.encoder_training import EncoderTraining
from research.runner.experiment_table import load_table, names_in, only
from research.runner.untrained_encoders import RandomEncoder

from .shipped_tables import EXPERIMENTS, data_of

ROOM = "research.runner"
TABLE = {
    "title": "T",
    "data": "cxr_demo",
    "seeds": [0, 1],
    "chain": {
        "encoder": {"path": f"{ROOM}.encoder_training.EncoderTraining", "split": 2},
        "classifiers": {
            "path": f"{ROOM}.classifiers.Classifiers",
            "protocols": {"linear": {"fractions": [0.1, 1]}},
        },
    },
    "scores": {"accuracy": {"path": f"{ROOM}.score_kinds.Accuracy", "label": "accuracy"}},
    "layout": {"path": f"{ROOM}.share_columns.ShareColumns"},
    "arms": {"a": {"group": "G"}, "b": {"encoder": {"path": f"{ROOM}.untrained_encoders.RandomEncoder"}}},
}


def read(tmp_path, **changes):
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump({**TABLE, **changes}, sort_keys=False))
    return load_table(path)


def chain(**changes):
    return {"chain": {**TABLE["chain"], **changes}}


def layout(kind, **settings):
    return {"layout": {"path": f"{ROOM}.{kind}", **settings}}


def test_an_arm_is_the_chain_with_its_own_settings_or_another_class(tmp_path):
    table = read(tmp_path, arms={**TABLE["arms"], "c": {"encoder": {"rounds": 2}, "x": 3}})
    a, b, c = table.arms
    assert isinstance(a.stages[0], EncoderTraining) and (a.stages[0].split, a.stages[0].rounds) == (2, 1)
    assert type(b.stages[0]) is RandomEncoder and b.stages[1] == a.stages[1]
    assert (c.stages[0].split, c.stages[0].rounds, c.x) == (2, 2, 3)
    assert [arm.name for arm in only(table, ["c", "a"]).arms] == ["a", "c"]
    with pytest.raises(JobError, match="no arm 'z'; it has: a, b, c"):
        only(table, ["z"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("b,a", ["b", "a"]),
        ("b, a", ["b", "a"]),
        ("a, twice", ["a, twice"]),
        ("b,a, twice,a", ["b", "a, twice", "a"]),
        ("b,z", ["b", "z"]),
    ],
)
def test_a_name_in_a_list_may_hold_a_comma(tmp_path, text, names):
    table = read(tmp_path, arms={**TABLE["arms"], "a, twice": {"encoder": {"rounds": 2}}})
    assert names_in(text, table) == names


def test_every_arm_is_there_with_each_variant(tmp_path):
    variants = {"one": {}, "two": {"encoder": {"split": 1, "rounds": 2}}}
    arms = {**TABLE["arms"], "c": {"encoder": {"rounds": 3}}}
    read_arms = {arm.name: arm for arm in read(tmp_path, variants=variants, arms=arms).arms}
    assert list(read_arms) == ["a, one", "b, one", "c, one", "a, two", "b, two", "c, two"]
    assert [read_arms[f"a, {name}"].stages[0].split for name in variants] == [2, 1]
    last = read_arms["c, two"]
    assert (last.stages[0].rounds, last.row, last.variant) == (3, "c", "two")
    assert read_arms["a, one"].group == "G" and read(tmp_path).arms[0].row == "a"
    with pytest.raises(JobError, match="'two' names 'nets', which is not a stage; there are: encoder, classifiers"):
        read(tmp_path, variants={"two": {"nets": {}}})


def test_a_table_may_be_like_another_one_but_for_what_it_says(tmp_path):
    read(tmp_path)
    (tmp_path / "u.yaml").write_text(yaml.safe_dump({"like": "t", "title": "U", "seeds": [5]}))
    table = load_table(tmp_path / "u.yaml")
    assert (table.name, table.title, table.seeds, table.data) == ("u", "U", [5], "cxr_demo")
    assert [arm.name for arm in table.arms] == ["a", "b"]
    (tmp_path / "v.yaml").write_text(yaml.safe_dump({"like": "u", "title": "V"}))
    with pytest.raises(JobError, match=r"u\.yaml: 'like' names a table that says everything itself"):
        load_table(tmp_path / "v.yaml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arms": {"a": {"encoder": {"nodes": "moco"}}}}, "arm 'a', encoder: key 'nodes' is 'moco'"),
        ({"arms": {"a": {"encoder": {"split": 3}}}}, "'split' is 3"),
        ({"arms": {"a": {"encoder": {"sizes": [0, 1]}}}}, "entry 1 of 'sizes' is 0"),
        ({"arms": {"a": {"encoder": {"skew": ["ill"]}}}}, "entry 1 of 'skew' is 'ill'"),
        ({"arms": {"a": {"encoder": {"path": "moco"}}}}, "'path' is 'moco'; it must name a class"),
        ({"arms": {"a": {"encoder": [1]}}}, r"'encoder' is \[1\]"),
        ({"arms": {"a": {"colour": 1}}}, "arm 'a', which may also name the stages encoder, classifiers: unknown key"),
        ({"arms": {}}, "'arms' is {}"),
        (chain(classifiers={"path": f"{ROOM}.classifiers.Classifiers", "protocols": {}}), "'protocols' is {}"),
        (chain(encoder={"path": f"{ROOM}.score_kinds.Accuracy"}), "is not a kind of .*Stage"),
        (layout("share_columns.ShareColumns", figure=["z"]), r"'figure' is \['z'\]"),
        (layout("site_columns.SiteColumns", baseline="z"), "'baseline' is 'z'; it must be one of the arms: a"),
        (layout("site_columns.SiteColumns", x_label="rate"), "no arm has an x"),
        (layout("site_columns.SiteColumns", x_label="r") | {"arms": {"a": {"x": 1}, "b": {"x": 1.0}}}, "the same x"),
        (layout("site_columns.SiteColumns", x_label="r", x_log=True) | {"arms": {"a": {"x": 0}}}, "x = 0.* no place"),
        ({"seeds": [0, 0]}, "none twice"),
        ({"claim": []}, "unknown key 'claim'"),
        ({"claims": [{"id": 1}]}, "claim 1: 'path' is None"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, words):
    with pytest.raises(JobError, match=words) as error:
        read(tmp_path, **changes)
    assert "t.yaml" in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(JobError, match=r"missing\.yaml"):
        load_table(tmp_path / "missing.yaml")


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_tables_that_come_along_fit_their_data(path):
    table = load_table(path)
    table.check_data(data_of(table.data))
    kinds = ("cholect50", "gain_pool")  # numbers, and no claim
    without = any(kind in path.stem for kind in kinds) or path.stem in ("fedst_table9", "fedst_tips")
    assert bool(table.claims) is not without and len(table.seeds) >= 3
    other = data_of("demo" if table.data == "cxr_demo" else "cxr_demo")
    with pytest.raises(JobError, match=f"table '{path.stem}' is made of .*, which needs .*Data"):
        table.check_data(other)


@pytest.mark.parametrize("name", sorted(path.stem for path in (EXPERIMENTS / "data").glob("*.yaml")))
def test_the_descriptions_of_data_that_come_along_can_be_read(name):
    assert data_of(name).name == name


def test_the_demo_in_a_table_is_that_of_its_job():
    """Its budget, its schedule and its sites, which are tested on more patients."""
    study = yaml.safe_load((EXPERIMENTS.parents[1] / "jobs/covid_agreement/app_server/config/study.yaml").read_text())
    demo = data_of("ct_demo")
    budget, rounds = demo.budget, (study["rounds"], study["warm_start"]["rounds"])
    assert (budget.steps // study["steps"], budget.warm_start // study["steps"]) == rounds
    assert budget.interval == study["steps"] and demo.networks["default"] == study["overlays"]
    assert set(demo.sites.values()) == set(study["sites"])
    assert demo.job["role_overlays"] == study["role_overlays"] and demo.overrides == study["overrides"]
