"""Invariants of a whole federation: order of sites, weight 0, threshold 1."""

from dataclasses import replace

import pytest
import torch

from fedmed.federation import client as client_module
from fedmed.federation import opened_model
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore
from fedmed.seeds import derive_seed
from fedmed.settings.site import load_site
from tests.federation.run_folder import model_of, rounds_of

TWO = {"ct_north": "supervised", "ct_south": "supervised"}
PAIR = {"ct_north": "supervised", "ct_east": "unsupervised"}
pytestmark = pytest.mark.usefixtures("unscored", "tiny_site_configs")


def test_swapping_two_labelled_sites_does_not_change_the_model(tiny_job, tmp_path, monkeypatch):
    """The hospitals change names, and with them their places in the server's lists; seeds follow the hospital."""
    home = {site: load_site(site).data_root for site in TWO}
    other = dict(zip(TWO, reversed(TWO), strict=True))

    def swapped_seed(base, site, *rest):
        return derive_seed(base, other.get(site, site), *rest)

    job = tiny_job(sites=TWO, steps=1)
    run_job(job, tmp_path / "first")
    for module in (client_module, opened_model):
        monkeypatch.setattr(module, "derive_seed", swapped_seed)
    sites = {}
    for site in TWO:
        theirs = load_site(other[site])
        assert theirs.data_root == home[other[site]]
        sites[site] = replace(theirs, site=site)
    run_job(job, tmp_path / "second", sites)
    first, second = model_of(tmp_path / "first"), model_of(tmp_path / "second")
    initial = ModelStore(read_job(job), tmp_path).initial
    for name, tensor in first.items():
        assert torch.allclose(tensor, second[name], atol=1e-6), name
    assert any((first[name] - initial[name]).abs().max() > 1e-4 for name in first), "nothing was learnt"


def test_an_unlabelled_site_of_weight_zero_leaves_supervised_federated_learning(tiny_job, lively, tmp_path):
    """A user weight of 0 is allowed: the site takes part, and counts for nothing."""
    spec = {"rounds": 2, "steps": 1, "overrides": lively}
    run_job(tiny_job("with", sites=PAIR, user_weights={"ct_east": 0.0}, **spec), tmp_path / "with")
    run_job(tiny_job("alone", sites={"ct_north": "supervised"}, **spec), tmp_path / "alone")
    both, alone = model_of(tmp_path / "with"), model_of(tmp_path / "alone")
    assert all(torch.equal(both[name], alone[name]) for name in alone)
    assert all(r["coefficients"] == {"ct_east": 0.0, "ct_north": 1.0} for r in rounds_of(tmp_path / "with"))


@pytest.mark.parametrize("loss", ["dice_hard", "dice_soft", "ce", "l1", "l2"])
def test_a_threshold_of_one_moves_nothing_whatever_the_loss(loss, tiny_job, lively, tmp_path):
    overrides = {**lively, "unsupervised": {**lively["unsupervised"], "confidence": 1.0, "consistency_loss": loss}}
    job = tiny_job(sites=PAIR, overrides=overrides)
    initial = ModelStore(read_job(job), tmp_path).initial
    client = Client(read_job(job), load_site("ct_east"), tmp_path / "site")
    update = client.train(Task("train", 0, 1, initial, steps=1))
    assert update.n_steps == 1 and not any(tensor.any() for tensor in update.tensors.values())
