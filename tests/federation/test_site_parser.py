"""A bundle's configuration for one task: steps from epochs, the site's own limit of a batch, and what a round is."""

import json
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.bundles.find import find_bundle
from fedmed.checks.part_in_job import job_of_bundle
from fedmed.errors import BundleError
from fedmed.federation.client import Client
from fedmed.federation.opened_model import listed, site_parser
from fedmed.messages.task import Task
from fedmed.settings.site import load_site
from fedmed.training.trainer import one_cycle

SMALL = {"batch_size": 2, "patch_size": [16, 16, 16], "pixdim": [5.5, 5.5, 12.0]}


@pytest.fixture
def site(tiny_site_configs):
    return load_site("ct_north")


def client_of(site, folder, overlays, **overrides):
    return Client(
        job_of_bundle("covid_ct_segmentation", "supervised", overlays, **overrides), site, folder, "supervised"
    )


def images(site):
    return len(json.loads(site.datalist.read_text())["training"])


def test_rounding_makes_no_step_more(site, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmed.federation.opened_model.parsed", lambda parser, id: range(100))
    bundle = Bundle("covid_ct_segmentation", ["demo"], {**SMALL, "batch_size": 1})
    steps = {epochs: site_parser(bundle, site, tmp_path, Task("train", 0, 1, {}, epochs=epochs), 0, {})["epoch_length"]
             for epochs in (0.07, 0.071, 1e-12)}  # fmt: skip
    assert 0.07 * 100 > 7 and steps == {0.07: 7, 0.071: 8, 1e-12: 1}


@pytest.mark.parametrize(("epochs", "batch", "most"), [(1, 2, None), (2.5, 2, None), (1, 4, 1), (0.01, 2, None)])
def test_epochs_become_steps_of_this_sites_images_and_batches(site, tmp_path, epochs, batch, most):
    bundle = Bundle("covid_ct_segmentation", ["demo"], {**SMALL, "batch_size": batch})
    site = replace(site, max_batch_size=most)
    task = Task("train", 3, 5, {}, epochs=epochs)
    parser = site_parser(bundle, site, tmp_path, task, 0, {"epoch_length": 0, "max_epochs": 1})
    n, size = images(site), min(batch, most or batch)
    assert n > 1 and parser["epoch_length"] == -(-n * epochs // size)
    assert parsed(parser, "train#trainer").state.epoch_length == parser["epoch_length"]


def test_a_site_trains_so_many_steps_and_says_so(site, tmp_path):
    client = client_of(site, tmp_path, ["demo"], **SMALL)
    parser = client.bundle.parser(device="cpu")
    torch.manual_seed(0)
    tensors = parsed(parser, "network").state_dict()
    update = client.train(Task("train", 0, 1, tensors, epochs=1.0))
    assert update.n_steps == -(-images(site) // 2) and update.n_samples == images(site)
    events = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [event["steps"] for event in events if event["event"] == "start"] == [update.n_steps]


def test_a_schedule_over_rounds_survives_a_kept_optimizer(tmp_path, monkeypatch, site):
    """The optimizer's state holds the learning rate of the round before; the bundle's for this round must win."""
    client = client_of(site, tmp_path, ["demo"], **SMALL)
    tensors = parsed(client.bundle.parser(device="cpu"), "network").state_dict()
    client.train(Task("train", 0, 2, tensors, steps=1))
    client.bundle.overrides["learning_rate"] = 0.0
    update = client.train(Task("train", 1, 2, tensors, steps=1, private_round=0))
    assert not any(tensor.any() for tensor in update.tensors.values())


def test_without_such_an_item_an_answer_for_other_sites_is_an_error_that_names_it(tmp_path, site):
    client = client_of(site, tmp_path, ["demo"])
    tensors = parsed(client.bundle.parser(device="cpu"), "network").state_dict()
    with pytest.raises(BundleError, match="'metadata#provider' cannot be built"):
        client.metadata(Task("metadata", 0, 1, tensors))


RATES = []  # of every step of every training in this process


class NoteRate:
    """A handler that an overlay lists: notes the learning rate of every step."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def attach(self, engine):
        engine.add_event_handler("ITERATION_STARTED", lambda: RATES.append(self.optimizer.param_groups[0]["lr"]))


OVERLAY = """
+train::federated_handlers:
- _target_: noting_rates.NoteRate
  optimizer: '@optimizer'
decay: $1 - @steps_before / @steps_total
"""


@pytest.fixture
def noting(tmp_path, monkeypatch):
    """A copy of the CT bundle with the overlay ``noting``, whose handler is attached in a federation alone."""
    bundle = shutil.copytree(find_bundle("covid_ct_segmentation"), tmp_path / "bundles" / "covid_ct_segmentation")
    (bundle / "configs" / "noting.yaml").write_text(OVERLAY)
    monkeypatch.setenv("FEDMED_BUNDLES", str(bundle.parent))
    monkeypatch.setitem(sys.modules, "noting_rates", SimpleNamespace(NoteRate=NoteRate))
    RATES.clear()
    return "noting"


@pytest.mark.parametrize("length", [{"steps": 2}, {"epochs": 0.4}], ids=["steps", "epochs"])
def test_a_learning_rate_goes_on_over_rounds_with_a_shared_overlay(noting, tmp_path, site, length):
    local = {**SMALL, "learning_rate": 1e-3, "batch_size": 1}
    client = client_of(site, tmp_path, ["demo", "one_cycle", noting], **local)
    tensors, last = parsed(client.bundle.parser(device="cpu"), "network").state_dict(), None
    for round in range(3):
        task = Task("train", round, 3, tensors, private_round=last, **length)
        parser = site_parser(client.bundle, site, tmp_path, task, 0, {} if "epochs" in length else {"epoch_length": 2})
        steps = parser["epoch_length"]
        assert parsed(parser, "decay") == 1 - round / 3 and parser["rounds"] == 3 and parser["round"] == round
        assert client.train(task).n_steps == steps
        last = round
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    schedule, expected = one_cycle(optimizer, 1e-3, 3 * steps), []
    for _ in range(3 * steps):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert pytest.approx(expected) == RATES and len(set(RATES)) == 3 * steps


def test_handlers_of_a_stand_alone_training_stay_out(noting, tmp_path, site):
    bundle = Bundle("covid_ct_segmentation", ["demo", noting], SMALL)
    parser = site_parser(bundle, site, tmp_path, Task("train", 0, 1, {}, steps=1), 0, {})
    assert parser.config["train"]["handlers"] == [] and len(listed(parser, "train", "federated_handlers")) == 1
    assert listed(parser, "train", "corrections") == [] == listed(parser, "predict", "corrections")
    parser["train#corrections"] = {"a": 1}
    with pytest.raises(BundleError, match="'train#corrections' is a dict; it must be a list"):
        listed(parser, "train", "corrections")
