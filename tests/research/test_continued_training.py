"""Chains of jobs: each starts from the model of the one before, and its scores stand for both."""

from itertools import combinations

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.errors import FedMedError, JobError
from research.runner.experiment_data import load_data
from research.runner.experiment_table import load_table
from research.runner.job_step import _in_places
from research.runner.reproduction import scores_of
from research.runner.score_table import score_frame
from research.runner.stages import Place, arm_works
from research.runner.start_model import whole

ROOM = "research.runner"
TRAIN = {"a": "supervised", "b": "unsupervised"}
FEDCY = "fedmed.systems.fedcy.method"
LABELS = {"method": {"path": f"{FEDCY}.FromFeatures"}}
STAGES = {
    "path": f"{ROOM}.continued_training.ContinuedTraining",
    "takes": [r"^features\."],
    "train": TRAIN,
    "control": "left_out",
    "job": {"method": {"path": "fedmed.systems.tecno.method.TeCNO"}},
    "overrides": {"supervised": {"learning_rate": 1.0e-3}},
}


def table_yaml(**changes):
    training = f"{ROOM}.federated_training.FederatedTraining"
    cycles = {"method": {"path": f"{FEDCY}.FedTCC"}, "select": "last", "evaluate": False}
    return {
        "title": "T",
        "data": "tiny",
        "seeds": [0],
        "test": ["a", "b"],
        "chain": {
            "features": None,
            "training": {"path": training, "train": TRAIN, "job": {"method": {"path": f"{FEDCY}.FedCy"}}},
            "stages": {**STAGES, "budget": {"rounds": 1}},
        },
        "scores": {"f1": {"path": f"{ROOM}.score_kinds.UnitMean", "metric": "f1", "label": "F1", "unit": "video"}},
        "layout": {"path": f"{ROOM}.site_means.SiteMeans"},
        "arms": {
            "from cycles": {
                "features": {"path": training, "train": dict.fromkeys(TRAIN, "unsupervised"), "job": cycles},
                "training": {**STAGES, "job": LABELS},
            },
            "nothing": {"stages": {"blank": True}, "training": {"control": "left_out"}},
        },
    } | changes


def data_yaml(small, **changes):
    return {
        "path": f"{ROOM}.federation_data.FederationData",
        "bundle": "surgical_phase_classification",
        "sites": {"a": "lap_harbor", "b": "lap_bay"},
        "labelled": "datalist_labelled.json",
        "networks": {"default": ["demo"]},
        "budget": {"rounds": 1},
        "overrides": {role: dict(settings) for role, settings in small.items()},
    } | changes


@pytest.fixture
def place(tmp_path, tiny_site_configs):
    """Return a function: where an arm of a table is planned, from the table's YAML and the data's."""

    def make(table, data, arm=0):
        for name, content in (("t", table), ("tiny", data)):
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        read, on = load_table(tmp_path / "t.yaml"), load_data(tmp_path / "tiny.yaml")
        read.check_data(on)
        return read.arms[arm], Place(read.arms[arm].name, 0, on, read.test, tmp_path / "runs")

    return make


def small(tiny_phases):
    """Settings of cycles are of no use to temporal stages and the other way round."""
    common = {key: tiny_phases["supervised"][key] for key in ("image_size", "frame_rate")}
    return {"supervised": common, "unsupervised": tiny_phases["unsupervised"], "evaluate": common}


def model(step):
    return load_tensors(step.path / "server" / "simulate_job" / "app_server" / "FL_global_model.pt")["model"]


def test_three_jobs_one_after_the_other(place, tiny_phases):
    arm, where = place(table_yaml(), data_yaml(small(tiny_phases)))
    [work] = arm_works(arm.stages, where)
    cycles, training, stages = work.steps
    work.do()
    assert not any(step.missing() for step in work.steps)
    assert cycles.scores() is None and set(cycles.job.study.sites.values()) == {"unsupervised"}
    # Stages leave the features bit for bit as the labels left them; these moved away from where cycles had led.
    before, after, first = model(training), model(stages), model(cycles)
    features = [name for name in before if name.startswith("features.")]
    assert features and all(torch.equal(before[name], after[name]) for name in features)
    assert any(not torch.equal(before[name], first[name]) for name in features)
    shown, last = scores_of([work]), stages.scores()
    f1 = [frame[(frame["metric"] == "f1") & (frame["model"] == "last")]["value"] for frame in (shown, last)]
    assert list(f1[0]) == list(f1[1]) and len(f1[0]) > 0


def test_a_blank_model_sees_nothing(place, tiny_phases):
    arm, where = place(table_yaml(), data_yaml(small(tiny_phases)), arm=1)
    [work] = arm_works(arm.stages, where)
    work.do()
    for name, tensor in model(work.steps[-1]).items():
        if name.startswith("features."):
            assert tensor.all() if name.endswith("running_var") else not tensor.any(), name


def test_a_job_that_goes_on_with_another_is_another(place, tiny_phases):
    arms = {"a": {}, "b": {"stages": {"blank": True}}, "c": {"training": {"control": "left_out"}}}
    arms |= {"d": {"stages": {"model": "selected"}}, "e": {"stages": None}}
    paths = {}
    for number, name in enumerate(arms):
        arm, where = place(table_yaml(arms=arms), data_yaml(small(tiny_phases)), number)
        [work] = arm_works(arm.stages, where)
        paths[name] = [step.path for step in work.steps]
    assert len(paths["e"]) == 1 and all(len(paths[name]) == 2 for name in "abcd")
    assert paths["a"][0] == paths["b"][0] == paths["d"][0] == paths["e"][0] != paths["c"][0]
    assert all(paths[x][1] != paths[y][1] for x, y in combinations("abcd", 2))


def test_each_hospital_alone_is_one_row_from_its_own_model(place, tiny_phases):
    alone = {"train": {}, "local": ["a", "b"], "at_home": True, "control": None}
    method = {"method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}}
    arms = {"each": {"training": {**alone, "job": method}, "stages": alone}}
    arm, where = place(table_yaml(arms=arms), data_yaml(small(tiny_phases)))
    works = arm_works(arm.stages, where)
    trained = [[step.job.study.sites for step in work.steps] for work in works]
    assert trained == [[{"lap_harbor": "supervised"}] * 2, [{"lap_bay": "supervised"}] * 2]
    assert all(work.steps[1].start is work.steps[0] and not work.steps[0].node for work in works)


def test_what_cannot_be_is_said(place, tiny_phases):
    data = data_yaml(small(tiny_phases))
    with pytest.raises(JobError, match="'nothing but stages': ContinuedTraining needs a stage before it"):
        arm, where = place(table_yaml(arms={"nothing but stages": {"training": None}}), data)
        arm_works(arm.stages, where)
    with pytest.raises(JobError, match="all of its stages are null"):
        place(table_yaml(arms={"none": {"training": None, "stages": None}}), data)
    with pytest.raises(JobError, match="has no 'path', and the chain says none"):
        place(table_yaml(arms={"x": {"features": {"train": TRAIN}}}), data)
    with pytest.raises(FedMedError, match="'at_home' is for 'local'"):
        place(table_yaml(arms={"x": {"training": {"train": {}, "centralised": ["a"], "at_home": True}}}), data)


def in_turn(tiny_phases, members):
    return data_yaml(small(tiny_phases), path=f"{ROOM}.sites_in_turn.SitesInTurn", members=members) | {"sites": {}}


def test_sites_take_turns(place, tiny_phases):
    train = {"labelled": "supervised", "other_1": "unsupervised"}
    arms = {"x": {"training": {"train": train}, "stages": {"train": train}}}
    data = in_turn(tiny_phases, ["lap_harbor", "lap_bay", "lap_cliff"])
    arm, where = place(table_yaml(arms=arms, test=["left_out", "other_1"]), data)
    works = arm_works(arm.stages, where)
    assert len(works) == 6 and all(len(work.steps) == 2 for work in works)
    roles = [work.steps[0].job.study.sites for work in works]
    kinds = [{role: site for site, role in sites.items()} for sites in roles]
    pairs = {(sites["supervised"], sites["evaluate"]) for sites in kinds}
    assert len(pairs) == 6 and all(len(sites) == 3 for sites in roles)
    assert all(work.steps[1].turn == work.steps[0].turn for work in works)
    for members, said in ((["lap_harbor", "lap_bay"], "needs three"), (["a", "a", "b"], "none twice")):
        with pytest.raises(JobError, match=said):
            place(table_yaml(arms=arms, test=["left_out"]), in_turn(tiny_phases, members))


def test_scores_of_a_turn_are_those_of_a_place():
    rows = [{"unit": "v1", "list": "test", "value": 0.5}, {"unit": "mean", "list": "sent", "value": 1.0}]
    frame = score_frame(rows, site="vid68", patient="p", metric="f1")
    scores = _in_places(frame, {"vid68": "left_out"}, "labels of vid73")
    assert list(scores["site"]) == ["left_out"] * 2 and list(scores["unit"]) == ["v1, labels of vid73", "mean"]
    assert set(scores["patient"]) == {"p"}


def test_a_model_of_two_parts_starts_another_as_their_sum():
    parts = {"sigma.features.w": 1.0, "psi.features.w": 0.5, "sigma.features.running_mean": 3.0}
    sums = whole({name: torch.tensor(value) for name, value in parts.items()})
    assert {name: float(t) for name, t in sums.items()} == {"features.w": 1.5, "features.running_mean": 3.0}
    assert whole({"features.w": torch.ones(1)}).keys() == {"features.w"}
