"""A bundle's configuration for one task: steps from epochs, the site's own limit of a batch, and what a round is."""

import json
from dataclasses import replace

import pytest
import torch

from fedmed.bundles.load import Bundle
from fedmed.bundles.network import parsed
from fedmed.errors import BundleError
from fedmed.federation.client import Client
from fedmed.federation.site_parser import site_parser
from fedmed.messages.task import Task
from fedmed.settings.site import load_site

SMALL = {"batch_size": 2, "patch_size": [16, 16, 16], "pixdim": [5.5, 5.5, 12.0]}


@pytest.fixture
def site(tiny_site_configs):
    return load_site("ct_north")


def images(site):
    return len(json.loads(site.datalist.read_text())["training"])


def test_rounding_makes_no_step_more(site, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmed.federation.site_parser.parsed", lambda parser, id: range(100))
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
    client = Client(site, tmp_path, bundle="covid_ct_segmentation", role="supervised", overlays=["demo"],
                    overrides=SMALL)  # fmt: skip
    parser = client.bundle.parser(device="cpu")
    torch.manual_seed(0)
    tensors = parsed(parser, "network").state_dict()
    update = client.train(Task("train", 0, 1, tensors, epochs=1.0))
    assert update.n_steps == -(-images(site) // 2) and update.n_samples == images(site)
    events = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [event["steps"] for event in events if event["event"] == "start"] == [update.n_steps]


def test_a_schedule_over_rounds_survives_a_kept_optimizer(tmp_path, monkeypatch, site):
    """The optimizer's state holds the learning rate of the round before; the bundle's for this round must win."""
    client = Client(site, tmp_path, bundle="covid_ct_segmentation", role="supervised", overlays=["demo"],
                    overrides=SMALL)  # fmt: skip
    tensors = parsed(client.bundle.parser(device="cpu"), "network").state_dict()
    client.train(Task("train", 0, 2, tensors, steps=1))
    client.bundle.overrides["learning_rate"] = 0.0
    update = client.train(Task("train", 1, 2, tensors, steps=1, private_round=0))
    assert not any(tensor.any() for tensor in update.tensors.values())


def test_without_such_an_item_an_answer_for_other_sites_is_an_error_that_names_it(tmp_path, site):
    client = Client(site, tmp_path, bundle="covid_ct_segmentation", role="supervised", overlays=["demo"])
    tensors = parsed(client.bundle.parser(device="cpu"), "network").state_dict()
    with pytest.raises(BundleError, match="'metadata#provider' cannot be built"):
        client.metadata(Task("metadata", 0, 1, tensors))
