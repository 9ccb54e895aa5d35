"""The release of private layers as FLARE carries it: from the executor of one site to the server's answer."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.flare.controller import FederationController
from fedmed.flare.convert import answer_to_model, model_to_release, task_to_model
from fedmed.flare.executors import SupervisedExecutor
from fedmed.jobs.job_folder import write_job
from fedmed.messages.answers import Release
from fedmed.messages.task import Task
from fedmed.recovery.site_state import SiteState
from tests.flare.wire import over_the_wire, site_context

PRIVATE = {"conv_final.2.conv.bias": torch.tensor([0.25, -1.5])}


@pytest.fixture(scope="module")
def made(job_of, tmp_path_factory):
    """A job and its folder. Do not change them."""
    job = job_of(name="x", sites={"ct_north": "supervised"}, rounds=4, steps=1, sharing="block_6")
    return job, write_job(job, tmp_path_factory.mktemp("release") / "job")


@pytest.fixture
def ask(tmp_path, monkeypatch, made):
    """Return a function: one site's answer to a release task, over the wire and through the controller's callback."""
    folder = tmp_path / "configs"
    folder.mkdir()
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(folder))
    (tmp_path / "data").mkdir()
    job, job_folder = made

    def ask(round=3, keep=False, **settings):
        values = {"data_root": str(tmp_path / "data"), "device": "cpu", **settings}
        (folder / "ct_north.yaml").write_text(yaml.safe_dump(values))
        context = site_context("ct_north", tmp_path, tmp_path / "run", job_folder / "app_supervised")
        SiteState(tmp_path / "run/fedmed").save(3, PRIVATE, optimizer={"secret": torch.ones(4)})
        task = Task("release", 3, 4, {}, private_round=round, study=job.digest, keep=keep)
        sent = over_the_wire(FLModelUtils.to_shareable(task_to_model(task)))
        reply = over_the_wire(SupervisedExecutor().execute("release", sent, context, Signal()))
        if reply.get_return_code() != ReturnCode.OK:
            return reply
        model = FLModelUtils.from_shareable(reply)
        model.meta["client_name"] = "ct_north"
        answers = {}
        assert FederationController._take(SimpleNamespace(), None, "release", answers, model) is True
        return answers["ct_north"]

    return ask


def test_an_allowed_release_arrives_bit_by_bit_and_nothing_else_does(ask):
    answer = ask(allow_release=True)
    assert (answer.site, answer.round, answer.allowed, answer.keep) == ("ct_north", 3, True, False)
    assert answer.tensors.keys() == PRIVATE.keys()
    assert all(torch.equal(answer.tensors[name], tensor) for name, tensor in PRIVATE.items())


@pytest.mark.parametrize(("requested", "allowed"), [(True, True), (True, False), (False, True)])
def test_that_the_mean_may_be_kept_arrives_only_where_the_job_asks_and_the_site_allows_it(ask, requested, allowed):
    answer = ask(keep=requested, allow_release=True, allow_kept_release=allowed)
    assert answer.allowed and answer.keep is (requested and allowed)


@pytest.mark.parametrize("settings", [{}, {"allow_release": False}])
def test_a_refusal_arrives_as_one(ask, settings, caplog):
    answer = ask(**settings)
    assert not answer.allowed and not answer.tensors
    assert "nothing is released" in caplog.text


def test_a_missing_state_is_an_error_at_the_site(ask, caplog):
    assert ask(round=9, allow_release=True).get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert "private state of round 9" in caplog.text


def test_what_is_malformed_counts_as_nothing_released():
    sent = answer_to_model(Release("a", 1, True, dict(PRIVATE)))
    for change in ({}, {"fedmed": "yes"}, {"fedmed": {"allowed": "true", "round": 1}}):
        sent.meta = {"client_name": "a", **change}
        assert model_to_release(sent) == Release("a", None)


@pytest.mark.parametrize("params", [None, {}, {"w": "text"}, {"w": [[1], [1, 2]]}, {"w": np.array([None])}, [1]])
def test_malformed_tensors_are_no_refusal_and_no_failure(params):
    """The server then names the tensor that is missing, as it does for a site in its own process."""
    sent = answer_to_model(Release("a", 1, True, dict(PRIVATE)))
    sent.meta["client_name"], sent.params = "a", params
    assert model_to_release(sent) == Release("a", 1, True, {})
