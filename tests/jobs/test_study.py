"""A study says everything about a job, once; every mistake in it is told with key, place, value and remedy."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from fedmed.errors import JobError
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.jobs.study import Study
from fedmed.jobs.study_text import changed_text
from tests.shipped import names, shipped

CHECKOUT = Path(__file__).resolve().parents[2]
TEXT = """\
name: study
bundle: covid_ct_segmentation
method:
  path: fedmed.systems.covid_fssl.method.Consistency
sites:
  a: supervised   # with masks
  b: unsupervised
rounds: 4
steps: 2
warm_start:
  rounds: 1
"""
FEDMOCO = {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": 1}}

LINEAR = {"path": "fedmed.systems.fedmoco.method.Linear"}


def job(**changes):
    return Job.of({**yaml.safe_load(TEXT), **changes})


@pytest.mark.parametrize("path", [shipped(name) for name in names()], ids=lambda path: path.stem)
def test_studies_of_the_repository_fit_the_schema(path):
    jsonschema.validate(yaml.safe_load(read_job(path).text), Study.model_json_schema())


def test_every_key_is_explained():
    assert all(field.description for field in Study.model_fields.values())


def test_all_mistakes_are_told_at_once_with_their_lines():
    text = TEXT.replace("rounds: 4", "rounds: many").replace("  rounds: 1", "  round: 1")
    text = text.replace("b: unsupervised", "b: boss")
    with pytest.raises(JobError) as error:
        Job.parse(text + "stepps: 3\nsteps: 5\n", "my.yaml")
    first, *lines = str(error.value).splitlines()
    assert first == "my.yaml: 5 mistakes:"
    lines = [line.strip() for line in lines]
    assert lines == [
        "line 7: key 'sites.b' is 'boss'; it must be 'supervised', 'unsupervised' or 'evaluate'",
        "line 8: key 'rounds' is 'many'; it must be a whole number",
        "line 11: unknown key 'warm_start.round'; did you mean 'rounds'? Known: rounds, sharing",
        lines[3],
        "line 13: key 'steps' occurs twice, in line 9 and here; remove one",
    ]
    assert lines[3].startswith("line 12: unknown key 'stepps'; did you mean 'steps'? Known: adaptation, algorithm, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "study.yaml: is empty; it must hold 'key: value' lines(.|\n)*study init METHOD"),
        ("- a\n", "holds a list; it must hold 'key: value' lines"),
        ("a: [\n", "study.yaml, line 2: not a readable YAML file"),
        ("a: \x07\n", "not a readable YAML file"),
        ("a: " + "[" * 5000, "study.yaml, line 1: has more than 20 lists and mappings in one another"),
        ("a: &x [1]\nb: [*x, *x]\n", r"study.yaml, line 2: has the alias \*x; write values out"),
        ("#" * (1 << 20) + "\na: 1", "has more than 1048576 characters"),
        (TEXT.replace("name: study", "3: study"), "(?s)key 'name' is missing: name of the job.*unknown key '3'"),
        (TEXT.replace("name: study", "name: ../study"), "'name' is '../study'; it must be 1 to 200 letters, digits"),
        (TEXT.replace("rounds: 4", "rounds: true"), "line 8: key 'rounds' is True; it must be a whole number"),
        (TEXT.replace("rounds: 4", "rounds: 0"), "'rounds' is 0; it must be at least 1"),
        (TEXT.replace("steps: 2", "steps: 1.5"), "'steps' is 1.5; it must be a whole number"),
        (TEXT.replace("steps: 2", "epochs: 0"), "'epochs' is 0; it must be above 0"),
        (TEXT.replace("steps: 2", "epochs: true"), "'epochs' is True; it must be a number"),
        (TEXT + "epochs: .nan\n", "'epochs' is nan"),
        (TEXT + "select: first\n", "'select' is 'first'; it must be 'best', 'last' or 'mean'"),
        (TEXT + "patience: 0\n", "'patience' is 0; it must be at least 1"),
        (TEXT + "patience: true\n", "'patience' is True; it must be a whole number"),
        (TEXT + "min_rounds: '2'\n", r"'min_rounds' is '2' \(write it without quotes\); it must be a whole number"),
        (TEXT + "buffers: home\n", "line 12: key 'buffers' is 'home'; it must be 'average', 'pooled' or 'local'"),
        (TEXT + "buffers: {unsupervised: home}\n", "'buffers.unsupervised' is 'home'; it must be 'average', 'pooled'"),
        (TEXT + "sharing: {boss: full}\n", "line 12: key 'sharing.boss' has a wrong name; it must be 'supervised', "),
        (TEXT.replace("  a: s", "  a b: s"), "line 6: key 'sites.a b' has a wrong name; it must be a site's name: le"),
        (TEXT.replace("  a: s", "  no: s"), "study.yaml, line 5: key False is not a text .*; write it in quotes"),
        (TEXT + "user_weights: {a: -1}\n", "'user_weights.a' is -1; it must be at least 0"),
        (TEXT + "classes: a,b\n", r"'classes' is 'a,b'; write a list: classes: \[a, b\], or on a command line --set '"),
        (TEXT + "classes: []\n", "'classes' is .*; it must be of 1 entries or more"),
        (TEXT + "classes: ['a,b']\n", "entry 1 of 'classes' is 'a,b'; use 1 to 64 letters"),
        (TEXT + "classes: [{name: a, code: {value: 3, meaning: x}}]\n", "is 3 .write it in quotes.; it must be a text"),
        (
            TEXT + "classes: [{name: a, color: x}]\n",
            "unknown key 'color' of entry 1 of 'classes'; did you mean 'colour'?",
        ),
        (TEXT.replace("rounds: 4", f"rounds: {10**30}"), "'rounds' is 1000.*; it must be at most 100000"),
        (TEXT.replace("steps: 2", f"steps: {10**18}"), "'steps' is 1000.*; it must be at most 1000000"),
        (TEXT + f"seed: {10**40}\n", "'seed' is 1000.*; it must be at most 4294967295"),
        (TEXT + "seed: -1\n", "'seed' is -1; it must be at least 0"),
        (TEXT.replace("name: study", f"name: {'x' * 5000}"), "'name' is 'xxx.*; it must be 1 to 200 letters"),
        (TEXT.replace("  a: s", f"  {'a' * 500}: s"), "has a wrong name; it must be a site's name: .*; at most 200"),
        (TEXT + f"checkpoint: {'x' * 5000}\n", "'checkpoint' is 'xxx.*; it must be a text of 200 characters at most"),
        (TEXT + f"overlays: [{'x' * 5000}]\n", "entry 1 of 'overlays' is .*; it must be a text of 200 characters"),
        (
            TEXT + f"classes: [{', '.join(f'c{n}' for n in range(1001))}]\n",
            "'classes' is .*; it must be of 1000 entries",
        ),
        (TEXT + f"classes: [{', '.join(f'c{n}' for n in range(20000))}]\n", "has more than 20000 values"),
        (TEXT + f"rule: {{args: {{a: {'x' * 5000}}}}}\n", "'rule.args' is .*; 'a' holds a text of more than 1000"),
        (TEXT + "rule: {args: {a: [1.0e+300]}}\n", "'rule.args' is .*; 'a' holds a number beyond 1e.15"),
        (TEXT + "resume: {job: a/b}\n", "'resume.job' is 'a/b'; it must be a job's id"),
    ],
)
def test_what_is_not_a_study(text, message):
    with pytest.raises(JobError, match=message):
        Job.parse(text)


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"epochs": 1}, ["study.yaml, line 9: give either 'steps' or 'epochs'"]),
        ({"warm_start": {"rounds": 9}}, ["study.yaml, line 10: 'warm_start.rounds' is 9; it must lie in 0…4"]),
        ({"release_from": "b", "sharing": "block_6"}, ["'release_from' is 'b'; it must be a supervised site: a"]),
        (
            {"release_from": "a", "sharing": "block_6", "release_keep": True},
            ["'release_keep' is for the mean of all sites"],
        ),
        (
            {"release_from": "all", "sharing": "block_6", "release_keep": True, "evaluate": False},
            ["'release_keep' needs 'evaluate': true"],
        ),
        (
            {"buffers": {"supervised": "pooled", "unsupervised": "average"}},
            ["study.yaml, line 12: 'buffers' has 'average' and 'pooled'"],
        ),
        ({"release_from": "a"}, ["study.yaml, line 12: 'release_from' asks for private layers, but all are shared"]),
        ({"select": "last", "evaluate_last": True}, ["'evaluate_last' needs 'select': 'best'"]),
        (
            {"select": "mean", "mean_rounds": 4},
            ["'mean_rounds' is 4, but there are 3 rounds after the warm start; lower"],
        ),
        ({"select": "mean", "rounds": 2, "warm_start": {}}, ["'mean_rounds' is 3, but there are 2 rounds; lower it"]),
        (
            {"select": "mean", "rounds": 1, "warm_start": {}},
            ["but there is 1 round; add rounds, or write 'select: best'"],
        ),
        ({"mean_rounds": 2}, ["'mean_rounds' is for 'select': 'mean'"]),
        ({"select": "mean", "patience": 2}, ["'patience' waits for better scores"]),
        (
            {"sites": {"b": "unsupervised"}, "select": "mean", "warm_start": {}},
            ["'select' is 'mean', but no site is 'supervised', by whose labels to score it; use 'last'"],
        ),
        ({"clip_norm": 2.0, "max_norm": 1.0}, ["'clip_norm' 2 never acts"]),
        ({"resume": {"job": "x", "fresh": ["c"]}}, ["'resume.fresh' names 'c'"]),
        (
            {"sites": {"b": "unsupervised"}},
            ["2 mistakes", "'select' is 'best', but no", "'warm_start.rounds' must be 0"],
        ),
        ({"sites": {"e": "evaluate"}, "warm_start": {}, "select": "last"}, ["'sites': none trains"]),
        ({"evaluate": False, "evaluate_last": True}, ["'evaluate_last' needs"]),
        ({"evaluate": False, "evaluate_first": True}, ["'evaluate_first' needs 'evaluate': true"]),
        ({"steps": None}, ["line 8: give either 'steps' or 'epochs'"]),
        ({"min_clients": 3}, ["'min_clients' is 3; the job has 2 training sites"]),
        ({"classes": ["a", {"name": "a"}]}, ["'classes' names 'a' twice"]),
        (
            {"overrides": {"supervised": {"classes": ["a", "b"]}}},
            ["'overrides.supervised.classes': classes are the whole study's; write 'classes: [a, b]'"],
        ),
        ({"patience": 2, "select": "last"}, ["'patience' waits for better scores"]),
        ({"patience": 2, "min_rounds": 5}, ["'min_rounds' is 5; it must lie in 0…4"]),
        ({"min_rounds": 2}, ["'min_rounds' is for a run that may end early"]),
        (
            {"user_weights": {"c": 1.0}, "checkpoint_tensors": ["x"], "steps": None},
            [
                "3 mistakes",
                "'user_weights' is for 'c', which is not one of the sites: a, b",
                "name that too",
                "'epochs'",
            ],
        ),
    ],
)
def test_a_study_that_contradicts_itself(changes, messages):
    with pytest.raises(JobError) as error:
        job(**changes)
    assert all(message in str(error.value) for message in messages), error.value


def test_classes_reach_every_role_and_the_server():
    lung = {"name": "lung", "label": "lungs"}
    made = job(classes=[lung])
    assert all(made.overrides(role) == {"classes": ["lung"]} for role in made.study.sites.values())
    assert [one.model_dump(exclude_defaults=True) for one in made.study.structures] == [lung]
    assert not job().study.structures and not job().overrides("supervised")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ["lung", "heart"]}, "line 12: 'classes' names lung, heart; this kind of task marks one structure"),
        (
            {"bundle": "cxr_classification", "method": LINEAR, "classes": ["normal"], "sites": {"a": "supervised"},
             "warm_start": {}},
            "'classes' names normal alone; a classifier needs two or more",
        ),
    ],
)  # fmt: skip
def test_classes_that_do_not_fit_the_kind_of_task(changes, message, tmp_path):
    with pytest.raises(JobError, match=message):
        write_job(job(**changes), tmp_path / "job")


def test_roles_that_do_not_fit_the_method():
    changes = {"method": FEDMOCO, "select": "last", "evaluate": False, "warm_start": {}}
    with pytest.raises(
        JobError, match="study.yaml, line 7: 'sites': site 'a' has the role 'supervised', which FedMoCo does not"
    ):
        job(**changes)
    with pytest.raises(JobError, match="linear classification .* needs at least 1 site with the role 'supervised'"):
        job(method={"path": "fedmed.systems.fedmoco.method.Linear"}, sites={"b": "evaluate"})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("os.system", "a job may not name the class 'os.system': it is not below fedmed.systems"),
        ("fedmed.flare.controller.FederationController", "a job may not name the class"),
        ("fedmed.methodsx.A", "a job may not name the class"),
        ("fedmed.methods.nothing.Method", "there is no class"),
        ("fedmed.systems.fedmoco.method.FedMocco", "there is no class"),
        ("fedmed.systems.fedmoco.method.JobError", "is not a class that is defined there"),
        ("fedmed.methods", "a job may not name the class"),
        ("a b", "'a b' is not a class path"),
    ],
)
def test_an_unknown_class_path_and_one_outside_the_allowed_rooms(path, message):
    with pytest.raises(JobError, match=f"study.yaml, line 3: .*{message}"):
        job(method={"path": path})


@pytest.mark.parametrize("path", ["os.system", "fedmed.systems.covid_fssl.method.Consistency"])
def test_a_rule_of_another_room_is_refused_too(tmp_path, path):
    with pytest.raises(JobError, match=f"a job may not name the class '{path}'|'{path}' is not|{path} is not a rule"):
        write_job(job(rule={"path": path}), tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_the_rule_is_the_methods_as_far_as_the_study_does_not_say_otherwise():
    mean = "fedmed.aggregation.weighted_mean.WeightedMean"
    assert job().short_rule == {"path": mean, "args": {"weighting": "iterations"}}
    said = job(rule={"args": {"rule": "median"}}, clip_norm=3)
    assert said.short_rule == {"path": mean, "args": {"weighting": "iterations", "rule": "median"}}
    assert said.rule["args"]["middle"]["args"]["rule"] == "median" and said.rule["args"]["clip_norm"] == 3.0
    assert job(rule={"path": mean, "args": {"weighting": "samples"}}).short_rule["args"] == {"weighting": "samples"}


def test_a_study_may_share_by_role():
    made = job(sharing={"unsupervised": "final"}, sites={"a": "supervised", "b": "unsupervised", "c": "evaluate"})
    groups = {site: made.group(role) for site, role in made.study.sites.items()}
    assert groups == {"a": "full", "b": "final", "c": "full"} and not made.all_shared


def test_values_are_changed_and_everything_else_stays():
    text = changed_text(TEXT, {"warm_start": {"rounds": 2}, "rounds": 5, "seed": 1})
    assert text == TEXT.replace("rounds: 4", "rounds: 5").replace(
        "warm_start:\n  rounds: 1\n", "warm_start: {rounds: 2}\nseed: 1\n"
    )
    commented = "a:\n  b: 1  # one\n\n# about c\nc: 2\n"
    assert changed_text(commented, {"a": {"b": 2}}) == "a: {b: 2}  # one\n\n# about c\nc: 2\n"
    assert yaml.safe_load(changed_text("a:\nb: 1\n", {"a": [1]})) == {"a": [1], "b": 1}
    assert yaml.safe_load(changed_text('{"a": 1, "b": 2}', {"b": 3, "c": 4})) == {"a": 1, "b": 3, "c": 4}


def test_the_digest_is_that_of_the_text(tmp_path):
    one = read_job(write_job(Job.parse(TEXT), tmp_path / "one"))
    other = read_job(write_job(Job.parse(TEXT + "# a word\n"), tmp_path / "other"))
    assert one.study == other.study and one.digest == Job.parse(TEXT).digest != other.digest


def test_values_that_are_one_object_are_written_out_each_time():
    small = {"batch_size": 1, "patch_size": [16, 16, 16]}
    made = job(overrides={"supervised": small, "unsupervised": small})
    assert "*" not in made.text and made.overrides(made.role("a")) == made.overrides(made.role("b")) == small
    assert made.changed({"overrides": {"supervised": small, "unsupervised": small}}).study == made.study


def test_a_site_that_the_study_does_not_name():
    with pytest.raises(JobError, match="has no site 'c'; it has a, b"):
        job().role("c")
