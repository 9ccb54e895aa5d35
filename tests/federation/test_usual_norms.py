"""An update that is absurdly large beside the others is its site's fault in that round, and ends nobody's run."""

import json
import math
from dataclasses import replace

import pytest
import torch

from fedmed.errors import JobError
from fedmed.federation.client import Client
from fedmed.federation.reported_numbers import LARGEST_RATIO, UsualNorms
from tests.federation.run_folder import rounds_of

SITES = "abc"


@pytest.fixture
def multiplied(monkeypatch):
    """Return a function: lets a site multiply its updates of some rounds."""
    train = Client.train

    def multiply(site, rounds, factor):
        def wrong(self, task):
            update = train(self, task)
            if self.site.site != site or task.round not in rounds:
                return update
            tensors = {name: t * factor if t.is_floating_point() else t for name, t in update.tensors.items()}
            return replace(update, tensors=tensors)

        monkeypatch.setattr(Client, "train", wrong)

    return multiply


@pytest.mark.parametrize(("sites", "factor"), [("ab", 1e6), ("ab", -1e30), ("abc", 1e30)])
def test_it_is_refused_by_name_and_the_others_go_on(small, multiplied, tmp_path, sites, factor):
    multiplied("b", {0, 2}, factor)
    server = small(sites, rounds=4, min_clients=1)
    lines = rounds_of(tmp_path / "ws")
    reported = [{entry["site"]: entry["reason"] for entry in line["refused"]} for line in lines]
    assert all(list(reasons) == ["b"] and "times" in reasons["b"] for reasons in (reported[0], reported[2]))
    assert reported[1] == reported[3] == {} and all(line["aggregated"] for line in lines)
    assert all(torch.isfinite(tensor).all() for tensor in server.tensors.values())
    assert server.last_round == {**dict.fromkeys(sites, 3)}


def test_alone_in_a_federation_it_is_measured_by_the_model_and_by_its_own_rounds(small, multiplied, tmp_path):
    multiplied("a", {2}, 1e30)
    server = small("a", rounds=4)
    assert [line["aggregated"] for line in rounds_of(tmp_path / "ws")] == [True, True, False, True]
    assert all(torch.isfinite(tensor).all() for tensor in server.tensors.values())


def test_a_study_may_widen_the_bound(small, multiplied, tmp_path):
    multiplied("b", {0}, 1e25)
    small("abc", rounds=1, max_norm_ratio=1e300)
    assert rounds_of(tmp_path / "ws")[0]["refused"] == []


def test_a_norm_beyond_the_largest_number_is_refused_whatever_the_study_says(small, multiplied, tmp_path):
    multiplied("b", {0}, 1e200)
    small("abc", rounds=1, max_norm_ratio=1e300, min_clients=1)
    (refused,) = rounds_of(tmp_path / "ws")[0]["refused"]
    assert refused["site"] == "b" and "beyond the largest number" in refused["reason"]


def test_a_number_beyond_the_largest_is_null_in_the_record(small, tmp_path, monkeypatch):
    geometry = {"a": {"norm": math.inf, "distance": math.nan, "cosine": 1.0}}
    monkeypatch.setattr("fedmed.federation.run_record.update_geometry", lambda *args: geometry)
    small("ab", rounds=1)
    assert rounds_of(tmp_path / "ws")[0]["geometry"] == {"a": {"norm": None, "distance": None, "cosine": 1.0}}


def test_an_error_in_a_record_ends_no_run(small, tmp_path, monkeypatch, caplog):
    def broken(*args):
        raise OverflowError("what a site sent cannot be written down")

    monkeypatch.setattr("fedmed.federation.server.round_record", broken)
    small("ab", rounds=2)
    assert [(row["round"], row["accepted"]) for row in rounds_of(tmp_path / "ws")] == [(0, ["a", "b"]), (1, ["a", "b"])]
    assert "cannot be written down" in caplog.text


@pytest.mark.parametrize("ratio", [0.5, 0, -1, float("nan"), float("inf"), "many"])
def test_a_bound_below_one_is_refused_by_name(small, ratio):
    with pytest.raises(JobError, match="max_norm_ratio"):
        small("ab", max_norm_ratio=ratio)


def refused(norms, result, model=1.0):
    return sorted(error.site for error in norms.refusals(result, lambda site: model))


def test_what_is_usual():
    norms, much = UsualNorms(), 1.01 * LARGEST_RATIO
    assert refused(norms, {"a": 1.0, "b": 0.9 * LARGEST_RATIO}) == []
    assert refused(norms, {"a": 1.0, "b": much}) == ["b"]  # of two sites the larger
    assert refused(norms, {"a": 1.0, "b": much, "c": much}) == ["b", "c"]
    assert refused(norms, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 3 * much}) == ["d"]
    assert refused(norms, {"a": 0.0, "b": 0.5}) == []  # a site that learns nothing says nothing of others
    assert refused(norms, {"a": 1e-9, "b": 0.5}) == []  # nor is one absurd that is no larger than the model
    assert refused(norms, {"a": 1e-9, "b": 2.0}) == ["b"]
    assert refused(norms, {"a": much}) == ["a"] and refused(norms, {"a": much}, model=0.0) == []
    norms.keep({"a": 1e-9, "b": 2.0})
    assert refused(norms, {"a": 1e-9, "b": 3.0}) == []  # it was as large before


def test_the_state_is_all_that_it_knows():
    norms, other = UsualNorms(), UsualNorms()
    for round in range(30):
        norms.keep({"a": 1.0 + round, "b": math.pi})
    other.restore(json.loads(json.dumps(norms.state())))
    assert other.earlier == norms.earlier and len(norms.earlier["a"]) < 30


def test_a_resumed_run_refuses_what_an_uninterrupted_one_refuses(small, multiplied, killed_before, same, tmp_path):
    """By the rounds before alone: in the third both sites send much more."""
    multiplied("b", {2, 3}, 30.0)
    bound = {"max_norm_ratio": 10.0, "min_clients": 1, "rounds": 5}
    whole = small("ab", name="whole", **bound)
    with killed_before(2):
        small("ab", name="cut", **bound)
    resumed = small("ab", name="cut", resume=True, **bound)
    refused = [[line["refused"] for line in rounds_of(tmp_path / name)] for name in ("whole", "cut")]
    assert refused[0] == refused[1] and any(refused[0][2:4])
    assert same(whole.tensors, resumed.tensors) and whole.usual.earlier == resumed.usual.earlier
