"""Values that sites send one another, as FLARE carries them from one site's executor to another's task."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.errors import JobError, UpdateRefused
from fedmed.flare.aggregators import SelfAdaptiveAggregator
from fedmed.flare.controller import FederationController
from fedmed.flare.convert import (
    answer_to_model,
    model_to_answer,
    model_to_extras,
    model_to_task,
    model_to_update,
    task_to_model,
)
from fedmed.flare.executors import ContrastiveExecutor
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.messages.answers import Extras, Update
from fedmed.messages.task import Task
from fedmed.privacy.limits import read_ledger
from tests.flare.wire import in_bytes, model_over_the_wire, over_the_wire, site_context

BUNDLES = Path(__file__).parents[1] / "federation"
METHOD = "exchanging.Exchanging"
VALUES = {
    "mu": torch.tensor([0.1, -2.0], dtype=torch.float64),
    "sigma": torch.randn(3),
    "half": torch.ones(1).half(),
    "point": torch.tensor(2.5),
    "n": 7,
    "rsa": 1 / 3,
}


DEEP = 1.0
for _ in range(900):
    DEEP = [DEEP]
MALFORMED = (
    *(3, "mu", [1], {1: 1.0}, {b"mu": 1.0}, {"mu": {("x", 1): 1.0}}, {"mu": DEEP}, {"mu": np.array(["x"])}),
    *({"mu": np.array([None])}, {"mu": np.zeros(2, dtype=">f4")}, {"mu": object()}, {"mu": b"x"}, {"mu": Path("/x")}),
)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def test_a_fingerprint_arrives_as_it_was():
    sent = Extras("a", 0, {"fingerprint": {"images": "volume", "counts": {"training": 10}, "memory": 8.5}})
    assert model_to_answer("fingerprint", model_over_the_wire(answer_to_model(sent)), "a") == sent


def test_values_of_an_answer_arrive_bit_by_bit_and_in_their_kind():
    for answer in (Extras("a", 3, VALUES), Update("a", 3, {"w": torch.ones(2)}, 1, 2, {}, VALUES)):
        name = "train" if isinstance(answer, Update) else "metadata"
        received = model_to_answer(name, model_over_the_wire(answer_to_model(answer)), "a")
        values = received.extras if isinstance(answer, Update) else received.values
        assert type(received) is type(answer) and (received.site, received.round) == ("a", 3)
        assert list(values) == list(VALUES) and all(same(values[key], VALUES[key]) for key in VALUES)


def test_values_of_a_task_arrive_bit_by_bit_and_in_their_order():
    others = [{"mu": torch.randn(2), "sigma": torch.randn(3).double()}, {"mu": torch.randn(2)}]
    task = Task("train", 4, 9, {}, epochs=0.5, reuse=True, extras={"others": others})
    again = model_to_task(model_over_the_wire(task_to_model(task)))
    assert again.config() == task.config() and (again.reuse, again.epochs, again.tensors) == (True, 0.5, {})
    assert [list(values) for values in again.extras["others"]] == [["mu", "sigma"], ["mu"]]
    assert all(same(a[key], b[key]) for a, b in zip(others, again.extras["others"], strict=True) for key in a)


@pytest.mark.parametrize(
    "facts",
    [
        *({}, {"round": 1}, {"round": 1, "extras": 3}, "yes", {"round": "1", "extras": {}}),
        *({"round": np.zeros(3), "extras": {}}, {"round": 1.0, "extras": {}}, {"round": True, "extras": {}}),
        *({"round": 1, "extras": extras} for extras in MALFORMED),
    ],
)
def test_what_is_malformed_is_an_answer_to_no_round(facts):
    model = answer_to_model(Extras("a", 1, {"n": 1}))
    model.meta = {"client_name": "a", "fedmed": facts}
    assert model_to_extras(model) == Extras("a", -1)
    with pytest.raises(UpdateRefused, match="'a'.*(malformed|not an answer of FedMed)"):
        model_to_answer("metadata", model, "a")


@pytest.mark.parametrize(
    "change",
    [
        *(
            {key: value}
            for key in ("round", "n_steps", "n_samples")
            for value in (math.inf, "1", 1.0, None, np.ones(2))
        ),
        *({"metrics": metrics} for metrics in ([1], "x", {"x" * 201: 1.0}, dict.fromkeys(map(str, range(1001)), 1))),
        *({"extras": extras} for extras in [*MALFORMED, dict.fromkeys(map(str, range(1001)), 1)]),
    ],
)
def test_a_malformed_update_is_refused_with_the_sites_name_and_the_server_notes_it(change):
    model = answer_to_model(Update("a", 0, {"w": torch.ones(1)}, 1, 2))
    model.meta = {"client_name": "a", "fedmed": {**model.meta["fedmed"], **change}}
    aggregator, noted = SelfAdaptiveAggregator(), []
    aggregator.server = SimpleNamespace(fail=lambda site, reason: noted.append((site, reason)))
    assert aggregator.accept_model(model) is False
    assert [site for site, _ in noted] == ["a"] and "malformed update" in noted[0][1]


def test_of_metrics_only_named_numbers_arrive():
    """Those that are not finite too, so that the server can refuse them by name."""
    strange = {b"x": 1.0, 3: 1.0, "huge": 10**400, "nan": math.nan, "text": "Meier", "ok": 1}
    model = answer_to_model(Update("a", 0, {}, 1, 2))
    model.meta = {"client_name": "a", "fedmed": {**model.meta["fedmed"], "metrics": strange}}
    metrics = model_to_update(model).metrics
    assert metrics.keys() == {"huge", "nan", "ok"} and metrics["ok"] == 1


@pytest.mark.parametrize("extras", [extras for extras in MALFORMED if extras])
def test_a_malformed_task_is_an_error_in_words(extras):
    model = task_to_model(Task("train", 0, 1, {"w": torch.ones(1)}, steps=1))
    model.meta["fedmed"]["extras"] = extras
    with pytest.raises(JobError, match="malformed|incomplete"):
        model_to_task(model)


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Return a function: a site's answer to a task, over the wire."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "datalist.json").write_text(json.dumps({"unlabeled": [[1.0, 2, 3], [0.5, 1, -1], [2, 0, 1]]}))
    (tmp_path / "configs").mkdir()
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path / "configs"))
    monkeypatch.setenv("FEDMED_BUNDLES", str(BUNDLES))
    monkeypatch.syspath_prepend(str(BUNDLES / "exchanging_bundle"))
    study = {"name": "x", "bundle": "exchanging_bundle", "method": {"path": METHOD}, "sites": {"a": "unsupervised"}}
    job = Job.of({**study, "rounds": 4, "epochs": 1, "select": "last", "evaluate": False}, [METHOD])
    write_job(job, tmp_path / "job")
    context = site_context("a", tmp_path, tmp_path / "run", tmp_path / "job/app_unsupervised")

    def ask(name, task, **privacy) -> Shareable:
        limits = {"account": "account.json", **privacy}
        values = {"data_root": str(tmp_path / "data"), "device": "cpu", "privacy": limits}
        values["allowed_classes"] = [METHOD]
        (tmp_path / "configs" / "a.yaml").write_text(yaml.safe_dump(values))
        sent = over_the_wire(FLModelUtils.to_shareable(task_to_model(replace(task, study=job.digest))))
        # A new executor for each task, as in a simulator with one thread.
        return over_the_wire(ContrastiveExecutor().execute(name, sent, context, Signal()))

    return ask


def started():
    from exchanging import Net

    torch.manual_seed(0)
    return Net().state_dict()


def test_a_site_keeps_the_model_for_its_task_to_train_and_sends_what_it_allows(ask, tmp_path):
    allowed = {"allowed_extras": ["mu", "n", "rsa"]}
    reply = ask("metadata", Task("metadata", 2, 4, started()), **allowed)
    model, answers = FLModelUtils.from_shareable(reply), {}
    model.meta["client_name"] = "a"
    assert FederationController._take(SimpleNamespace(), None, "metadata", answers, model) is True
    data = torch.tensor([[1.0, 2, 3], [0.5, 1, -1], [2, 0, 1]])
    state = started()
    expected = (data @ state["weight"].T + state["bias"]).mean(0)
    assert torch.allclose(answers["a"].values["mu"], expected) and answers["a"].values["n"] == 3
    task = Task("train", 2, 4, {}, epochs=1, reuse=True, extras={"others": [{"mu": torch.ones(2)}]})
    update = model_to_answer("train", FLModelUtils.from_shareable(ask("train", task, **allowed)), "a")
    assert update.n_steps == math.ceil(3 / 2) and update.tensors["weight"].any() and -1 <= update.extras["rsa"] <= 1
    lines = [(line["answer"], line["extras"]) for line in read_ledger(tmp_path / "run") if line["answer"] != "live"]
    assert lines == [("metadata", {"mu": "float32 2", "n": 3}), ("update", {"rsa": update.extras["rsa"]})]


def test_without_a_word_of_the_site_nothing_leaves_and_without_a_model_it_says_so(ask, caplog):
    reply = ask("metadata", Task("metadata", 2, 4, started()))
    assert model_to_answer("metadata", FLModelUtils.from_shareable(reply), "a") == Extras("a", 2, {})
    reply = ask("train", Task("train", 3, 4, {}, epochs=1, reuse=True))
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION and "is of round 2, round 3" in caplog.text


def test_a_site_that_cannot_work_refuses_either_task_and_says_why_at_home_alone(ask, tmp_path, caplog):
    (tmp_path / "data" / "datalist.json").unlink()
    for name, facts in {"metadata": {}, "train": {"epochs": 1}}.items():
        reply = ask(name, Task(name, 2, 4, started(), **facts), allowed_extras=["mu"])
        assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
        assert str(tmp_path).encode() not in in_bytes(reply)
    assert str(tmp_path / "data") in caplog.text
    answers = [(line["task"], line["answer"]) for line in read_ledger(tmp_path / "run")]
    assert answers == [("metadata", "refused"), ("train", "refused")]
