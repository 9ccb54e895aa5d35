"""The filter at a site: what it passes, what it replaces by a code, and that a job cannot get around it."""

import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.private.privacy_manager import Scope

from fedmed.flare import convert, executors, filters
from fedmed.flare.convert import answer_to_model, model_to_answer
from fedmed.flare.executors import SupervisedExecutor
from fedmed.flare.filters import TASK, SiteLimitsFilter
from fedmed.messages.answers import Release, Update
from fedmed.messages.task import Task
from fedmed.privacy import payload as payload_module
from fedmed.privacy.payload import payload_digest
from tests.flare.wire import in_bytes, site_context

UPDATE = Update("a", 2, {"w": torch.randn(4, 3), "n": torch.tensor(7)}, 5, 9, {"train_loss": 0.25})


@pytest.fixture
def context(tmp_path, monkeypatch):
    """Return a function: the context of one task at site ``a``, whose YAML has the given privacy block."""
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
    (tmp_path / "data").mkdir()

    def context(task="train", round=2, **privacy):
        values = {"data_root": "data", "device": "cpu", "privacy": {"account": "account.json", **privacy}}
        (tmp_path / "a.yaml").write_text(yaml.safe_dump(values))
        fl_ctx = site_context("a", tmp_path, tmp_path / "job", task=task)
        fl_ctx.set_prop(TASK, Task(task, round, 9, {}), private=True, sticky=False)
        return fl_ctx

    return context


def wrapped(answer):
    return FLModelUtils.to_shareable(answer_to_model(answer))


def opened(reply, task="train"):
    return model_to_answer(task, FLModelUtils.from_shareable(reply), "a")


def ledger(tmp_path):
    return [json.loads(line) for line in (tmp_path / "job/fedmed/ledger.jsonl").read_text().splitlines()]


def refused(reply):
    return reply.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR and set(reply) <= {"__headers__", "__rc__"}


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("train", UPDATE),
        ("release", Release("a", 2, True, {"w": torch.randn(3)})),
        ("release", Release("a", None)),
        ("validate", {"val_dice": 0.5}),
        ("evaluate", {}),
    ],
)
def test_without_limits_every_answer_passes_bit_by_bit(context, task, answer, tmp_path):
    sent = wrapped(answer)
    reply = SiteLimitsFilter().process(sent, context(task))
    assert str(reply) == str(sent) and reply is not sent
    received = opened(reply, task)
    assert type(received) is type(answer)
    for name, tensor in getattr(answer, "tensors", {}).items():
        assert torch.equal(received.tensors[name], tensor) and received.tensors[name].dtype == tensor.dtype
    assert [(line["task"], line["round"]) for line in ledger(tmp_path)] == [
        (task, 2 if answer != Release("a", None) else None)
    ]


def test_the_sites_yaml_decides(context):
    assert refused(SiteLimitsFilter().process(wrapped(UPDATE), context(allowed_tensors=["^x"])))
    clipped = opened(SiteLimitsFilter().process(wrapped(UPDATE), context(clip_norm=0.5, allowed_metrics=[])))
    assert float(clipped.tensors["w"].norm()) == pytest.approx(0.5) and clipped.metrics == {}
    assert int(clipped.tensors["n"]) == 7


def test_it_takes_no_argument_from_a_job():
    with pytest.raises(TypeError):
        SiteLimitsFilter(clip_norm=1e9)


def test_it_acts_once_though_site_and_job_both_have_it(context, tmp_path):
    scope, fl_ctx = Scope(), context(clip_norm=1.0, noise_multiplier=1.0, allowed_metrics=[])
    fl_ctx.set_prop(TASK, Task("train", 2, 9, {}), private=True, sticky=False)
    scope.add_task_result_filter(SiteLimitsFilter(), FilterKey.OUT)
    fl_ctx.set_prop(FLContextKey.SCOPE_OBJECT, scope, private=True, sticky=False)
    of_job = {f"train/{FilterKey.OUT}": [SiteLimitsFilter()]}
    only_floats = Update("a", 2, {"w": torch.randn(4)}, 5, 9)
    reply = apply_filters("task_result_filters", wrapped(only_floats), fl_ctx, of_job, "train", FilterKey.OUT)
    assert opened(reply).tensors["w"].shape == (4,)
    (line,) = ledger(tmp_path)
    assert line["answer"] == "update"
    assert json.loads((tmp_path / "account.json").read_text())["answers_with_noise"][0]["answers"] == 1


def test_a_job_that_hides_the_filter_does_not_reach_the_sites_own(context, tmp_path):
    scope, fl_ctx = Scope(), context(allowed_tensors=["^x"])
    scope.add_task_result_filter(SiteLimitsFilter(), FilterKey.OUT)
    fl_ctx.set_prop(FLContextKey.SCOPE_OBJECT, scope, private=True, sticky=False)
    assert refused(apply_filters("task_result_filters", wrapped(UPDATE), fl_ctx, {}, "train", FilterKey.OUT))


def with_header(shareable):
    shareable.set_header("note", "patient 4711")
    return shareable


def changed(change):
    shareable = wrapped(UPDATE)
    change(shareable)
    return shareable


@pytest.mark.parametrize(
    "answer",
    [
        with_header(wrapped(UPDATE)),
        changed(lambda s: s.update(note="patient 4711")),
        changed(lambda s: s["DXO"].update(note="patient 4711")),
        changed(lambda s: s["DXO"]["meta"].update(note="patient 4711")),
        changed(lambda s: s["DXO"]["meta"]["fedmed"].update(note="patient 4711")),
        changed(lambda s: s["DXO"]["meta"]["fedmed"]["metrics"].update(note="patient 4711")),
        changed(lambda s: s["DXO"]["meta"]["fedmed"].update(n_steps="patient 4711")),
        changed(lambda s: s["DXO"]["data"].update(w=np.array(["patient 4711"]))),
        changed(lambda s: s["DXO"]["data"].update(w=np.array([{"patient": 4711}], dtype=object))),
        changed(lambda s: s["DXO"].update(kind=DataKind.WEIGHTS)),
        DXO(DataKind.APP_DEFINED, {"patient": 4711}).to_shareable(),
        DXO(DataKind.STATISTICS, {"patient": 4711}).to_shareable(),
        DXO(DataKind.METRICS, {"patient": 4711}).to_shareable(),
        Shareable({"patient": 4711}),
        wrapped({"val_dice": 0.5}),
    ],
)
def test_what_is_no_answer_of_ours_does_not_leave(context, answer, tmp_path):
    reply = SiteLimitsFilter().process(answer, context())
    assert refused(reply) and "4711" not in str(reply)
    assert ledger(tmp_path)[-1]["answer"] == "refused"


def test_answers_to_unknown_tasks_do_not_leave(context):
    assert refused(SiteLimitsFilter().process(wrapped({"val_dice": 0.5}), context("collect_everything")))


def test_of_an_error_only_the_code_leaves(context, tmp_path):
    filter = SiteLimitsFilter()
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, {"__error__": "no file /patients/4711.nii"})
    reply["details"] = "patient 4711"
    reply = filter.process(reply, context())
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION and "4711" not in str(reply)
    assert list(reply) == ["__headers__"] and list(reply["__headers__"]) == ["__rc__"]
    assert filter.process(make_reply("patient 4711"), context()).get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert [line["answer"] for line in ledger(tmp_path)] == ["refused", "refused"]


def test_a_wrong_yaml_stops_every_answer(context, caplog):
    assert refused(SiteLimitsFilter().process(wrapped(UPDATE), context(clip_norm="much")))
    assert "'privacy.clip_norm' is 'much'" in caplog.text


def test_an_unexpected_error_in_the_filter_stops_the_answer(context, monkeypatch, caplog):
    filter = SiteLimitsFilter()
    monkeypatch.setattr("fedmed.flare.filters.site_limits", lambda fl_ctx: 1 / 0)
    assert refused(filter.process(wrapped(UPDATE), context()))
    assert "cannot be checked" in caplog.text


def test_executors_hold_their_answers_against_the_limits_whatever_the_workflow(context, monkeypatch, tmp_path):
    """FLARE's workflows from site to site ask no filter."""
    monkeypatch.setattr(SupervisedExecutor, "_answer", lambda *args: wrapped(UPDATE))
    fl_ctx = context("swarm_learn", clip_norm=0.5)
    reply = SupervisedExecutor().execute("train", Shareable(), fl_ctx, Signal())
    assert float(opened(reply).tensors["w"].norm()) == pytest.approx(0.5)
    fl_ctx.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
    assert SiteLimitsFilter().process(reply, fl_ctx) is reply  # the site's own filter has nothing left to do
    assert len(ledger(tmp_path)) == 1
    strict = context("swarm_learn", allowed_tensors=["^x"])
    assert refused(SupervisedExecutor().execute("train", Shareable(), strict, Signal()))


@pytest.fixture
def work(monkeypatch):
    """Tensors that are converted, one way and the other, and elements' bytes that are hashed, on the way out."""
    counts = {"to_numpy": 0, "to_tensors": 0, "hashed": 0}

    def counted(name, function):
        def count(values):
            counts[name] += sum(v.size if isinstance(v, np.ndarray) else v.numel() for v in values.values())
            return function(values)

        return count

    class Digest:
        def __init__(self):
            self.digest = hashlib.sha256()

        def update(self, data):
            counts["hashed"] += len(data) if isinstance(data, memoryview) else 0
            self.digest.update(data)

        def hexdigest(self):
            return self.digest.hexdigest()

    for name in ("to_numpy", "to_tensors"):
        monkeypatch.setattr(convert, name, counted(name, getattr(convert, name)))
    monkeypatch.setattr(payload_module, "hashlib", SimpleNamespace(sha256=Digest))
    return counts


NOISE = {"clip_norm": 1.0, "noise_multiplier": 1.0, "allowed_metrics": [], "noise_seed": 1}
BIG = {"w": torch.randn(40, 50), "v": torch.randn(10)}


@pytest.mark.parametrize("privacy", [{}, {"clip_norm": 0.5, "max_bytes": 10**6}, NOISE])
def test_an_update_is_converted_once_and_hashed_once_on_its_way_out(context, monkeypatch, work, tmp_path, privacy):
    update = Update("a", 2, dict(BIG), 5, 9)
    monkeypatch.setattr(SupervisedExecutor, "_answer", lambda *args: update)
    fl_ctx = context(**privacy)
    reply = SupervisedExecutor().execute("train", Shareable(), fl_ctx, Signal())
    reply = SiteLimitsFilter().process(reply, fl_ctx)  # of a provisioned site, or of the job
    assert work == {"to_numpy": 2010, "to_tensors": 0, "hashed": 4 * 2010}
    (line,) = ledger(tmp_path)
    sent = opened(reply)
    content = {key: getattr(sent, key) for key in ("tensors", "n_steps", "n_samples", "metrics", "extras")}
    assert line["sha256"] == payload_digest(content)
    if not privacy:  # not even copied
        assert all(np.shares_memory(reply["DXO"]["data"][name], tensor.numpy()) for name, tensor in BIG.items())


def test_an_answer_of_another_make_leaves_with_the_same_bytes_and_is_no_more_the_executors(context, work, tmp_path):
    fl_ctx, sent = context(**NOISE), wrapped(Update("a", 2, dict(BIG), 5, 9))
    work.update(dict.fromkeys(work, 0))
    reply = SiteLimitsFilter().process(sent, fl_ctx)
    assert work == {"to_numpy": 2010, "to_tensors": 2010, "hashed": 4 * 2010}
    local = SiteLimitsFilter().limit("train", Update("a", 2, dict(BIG), 5, 9), context(**NOISE))
    assert in_bytes(reply) == in_bytes(local)
    assert len({line["sha256"] for line in ledger(tmp_path)}) == 1
    unlimited = SiteLimitsFilter().process(sent, context())
    assert not np.shares_memory(unlimited["DXO"]["data"]["w"], sent["DXO"]["data"]["w"])


def test_nothing_at_a_site_is_logged_through_flare():
    """A job can list ConvertToFedEvent with ``error_log_available``: then FLARE sends what its components log."""
    for module in (executors, filters):
        assert not re.search(r"self\.(log_\w+|info|warning|error)\(", Path(module.__file__).read_text())
