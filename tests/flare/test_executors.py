"""Answers that leave a site, also when it cannot work."""

import shutil

import pytest
import torch
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.durable_files import load_tensors
from fedmed.errors import UpdateRefused
from fedmed.federation.client import Client
from fedmed.files import SHARED_ROUNDS
from fedmed.flare.convert import answer_to_model, model_to_update, task_to_model
from fedmed.flare.executors import ConsistencyExecutor, ContrastiveExecutor, SupervisedExecutor
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.messages.answers import Update
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore
from tests.flare.wire import in_bytes, model_over_the_wire, site_context


@pytest.fixture
def context(tmp_path):
    return site_context("ct_north", tmp_path, tmp_path / "run", tmp_path / "app")


@pytest.fixture
def work(tiny_job, two_levels, tmp_path, context):
    """Return a function that executes one training task at ct_north and gives reply and task."""

    def work(signal=None, change=None, **spec):
        job = tiny_job(sites={"ct_north": "supervised"}, **{"overlays": two_levels, **spec})
        shutil.copytree(job / "app_supervised", tmp_path / "app")
        made = read_job(job)
        initial = ModelStore(made, tmp_path).initial
        task = Task("train", 0, 1, initial, steps=1, study=made.digest)
        if spec.get("sharing", "full") != "full":
            task.tensors = {n: t for n, t in task.tensors.items() if n.startswith(("convInit", "down_layers"))}
        if change:
            change(task)
        executor = SupervisedExecutor()
        shareable = FLModelUtils.to_shareable(task_to_model(task))
        return executor.execute("train", shareable, context, signal or Signal())

    return work


def test_update_survives_the_wire_bit_by_bit():
    tensors = {"w": torch.randn(3), "n": torch.tensor(2), "h": torch.randn(2, 2).half()}
    sent = Update("a", 3, tensors, 7, 11, {"train_loss": 0.5, "val_dice": float("nan")})
    model = model_over_the_wire(answer_to_model(sent))
    model.meta["client_name"] = "a"
    received = model_to_update(model)
    assert list(received.tensors) == list(tensors)
    for name, tensor in tensors.items():
        assert received.tensors[name].dtype == tensor.dtype and torch.equal(received.tensors[name], tensor)
    assert (received.round, received.n_steps, received.n_samples) == (3, 7, 11)
    assert received.metrics == {"train_loss": 0.5}


def test_what_is_not_an_update_is_refused():
    model = answer_to_model(Update("a", 0, {"w": torch.zeros(1)}, 1, 1))
    model.meta = {"client_name": "a"}
    with pytest.raises(UpdateRefused, match="'a'.*not a FedMed update"):
        model_to_update(model)


def test_private_layers_file_names_and_masks_stay_at_the_site(work, tmp_path):
    reply = work(sharing="block_6")
    assert reply.get_return_code() == ReturnCode.OK
    wire = in_bytes(reply)
    state = load_tensors(tmp_path / "run/fedmed/state/round_0.pt")
    assert state["private"]
    for name, tensor in state["private"].items():
        assert name.encode() not in wire
        assert tensor.numel() < 16 or tensor.numpy().tobytes() not in wire
    assert b".nii" not in wire and b"images/" not in wire and str(tmp_path).encode() not in wire


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task.tensors.pop(next(iter(task.tensors))), "missing from what the server sent"),
        (lambda task: task.tensors.update(extra=torch.zeros(1)), "'extra' is not in this site's model"),
        (lambda task: setattr(task, "bundle_digest", "0" * 64), "differs from the server's"),
        (lambda task: setattr(task, "private_round", 7), "private state of round 7"),
        (lambda task: setattr(task, "study", "0" * 64), "study (hash 000000000000) is not this site's"),
        (lambda task: setattr(task, "study", ""), "study (hash none) is not this site's"),
    ],
)
def test_errors_stay_at_the_site_and_only_a_code_travels(work, caplog, change, message):
    reply = work(change=change)
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert message in caplog.text
    assert set(reply) <= {"__headers__", "__rc__"} and "ct_north" not in str(reply)


@pytest.mark.parametrize("shared", [True, False])
def test_a_job_and_its_control_train_the_warm_start_once(work, monkeypatch, tmp_path, shared):
    if shared:
        monkeypatch.setenv(SHARED_ROUNDS, str(tmp_path / "rounds"))
    trained, train = [], Client.train
    monkeypatch.setattr(Client, "train", lambda self, task: trained.append(task.round) or train(self, task))
    sent = []
    for name in ("job", "control"):
        reply = FLModelUtils.from_shareable(work(name=name, warm_start={"rounds": 1}))
        sent.append(reply.params)
        shutil.rmtree(tmp_path / "run")
        shutil.rmtree(tmp_path / "app")
    assert len(trained) == (1 if shared else 2)
    assert all((sent[0][name] == value).all() for name, value in sent[1].items())


def test_abort_ends_training_at_the_next_step(work):
    signal = Signal()
    signal.trigger(True)
    assert work(signal).get_return_code() == ReturnCode.TASK_ABORTED


def test_unexpected_errors_are_caught_too(context, monkeypatch, tmp_path, caplog):
    executor = SupervisedExecutor()
    monkeypatch.setattr(executor, "_work", lambda *a: (_ for _ in ()).throw(MemoryError("CUDA out of memory")))
    shareable = FLModelUtils.to_shareable(task_to_model(Task("train", 0, 1, {"w": torch.zeros(1)})))
    assert executor.execute("train", shareable, context, Signal()).get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert "out of memory" in caplog.text


def test_a_task_of_another_product_is_an_error_not_a_crash(context):
    executor = SupervisedExecutor()
    assert executor.execute("train", Shareable(), context, Signal()).get_return_code() == ReturnCode.EXECUTION_EXCEPTION


@pytest.mark.parametrize(
    ("executor", "role"),
    [(ConsistencyExecutor, "supervised"), (SupervisedExecutor, "unsupervised"), (ContrastiveExecutor, "evaluate")],
)
def test_names_of_executors_say_what_they_do(job_of, context, tmp_path, caplog, executor, role):
    sites = {"ct_north": role, "ct_south": "supervised"}
    write_job(job_of(name="x", sites=sites, rounds=1, steps=1), tmp_path / "job")
    shutil.copytree(tmp_path / "job" / f"app_{role}", tmp_path / "app")
    shareable = FLModelUtils.to_shareable(task_to_model(Task("train", 0, 1, {"w": torch.zeros(1)})))
    assert executor().execute("train", shareable, context, Signal()).get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert f"{executor.__name__} is for the role" in caplog.text and f"study.yaml says '{role}'" in caplog.text
