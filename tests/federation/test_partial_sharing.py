"""Private layers stay where they are, in every sharing group; the one way out is asked for, allowed and accounted."""

import logging
from dataclasses import replace

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.selection import ModelSelection
from fedmed.jobs.job_folder import read_job
from fedmed.recovery.model_store import ModelStore
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.reports.site_rows import site_rows
from fedmed.settings.site import load_site
from tests.federation.run_folder import kept_of, model_of, result_of

pytestmark = pytest.mark.usefixtures("no_charts")

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised", "ct_west": "evaluate"}
HEADS = {
    "final": ("conv_final.",),
    "block_6": ("conv_final.", "up_samples.", "up_layers."),
}


@pytest.fixture
def spied(monkeypatch):
    """Tasks and answers of every site, as they pass between server and sites: (site, task, answer)."""
    passed = []

    def spy(name):
        original = getattr(Client, name)

        def call(self, task):
            answer = original(self, task)
            passed.append((self.site.site, task, answer))
            return answer

        monkeypatch.setattr(Client, name, call)

    for name in ("train", "validate", "evaluate", "release"):
        spy(name)
    return passed


def server_file(workspace, name):
    return workspace / "server/simulate_job" / name


def n_bytes(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


@pytest.mark.parametrize("group", HEADS)
def test_private_layers_differ_between_sites_stay_there_and_shared_ones_agree(
    group, tiny_job, lively, unscored, spied, tmp_path, tiny_site_configs
):
    training = {site: role for site, role in SITES.items() if role != "evaluate"}
    job = tiny_job(sharing=group, sites=training, overrides=lively, rounds=2, steps=1, validate_every=2)
    willing = {site: replace(load_site(site), allow_release=True) for site in training}
    server = run_job(job, tmp_path / "ws", willing)
    initial = ModelStore(read_job(job), tmp_path).initial
    private = {site: kept_of(tmp_path / "ws", site, 1)["private"] for site in training}
    names = {name for name in initial if name.startswith(HEADS[group])}
    assert all(local.keys() == names for local in private.values()) and names
    sites = sorted(private)
    for a, b in ((sites[0], sites[1]), (sites[0], sites[2]), (sites[1], sites[2])):
        assert any(not torch.equal(private[a][name], private[b][name]) for name in names), (a, b)
    # What the sites train the last round on: the same shared tensors for all, and nothing private.
    last = [task.tensors for _, task, _ in spied if task.name == "train" and task.round == 1]
    assert len(last) == 3 and all(tensors.keys() == initial.keys() - names for tensors in last)
    assert all(torch.equal(last[0][name], other[name]) for other in last[1:] for name in last[0])
    assert any(not torch.equal(last[0][name], initial[name]) for name in last[0])
    for _, task, answer in spied:
        assert not names & task.tensors.keys() and not names & getattr(answer, "tensors", {}).keys()
    assert "release" not in {task.name for _, task, _ in spied}, "nobody asked"
    assert all(torch.equal(server.tensors[name], initial[name]) for name in names)
    result = result_of(tmp_path / "ws")
    assert set(result["test"]) == {"ct_north", "ct_south"} and "releases" not in result


@pytest.fixture
def run(tiny_job, lively, tmp_path, tiny_site_configs):
    """Run a partial job; ``allowed``: the sites whose own settings allow a release."""

    def run(allowed=(), **spec):
        job = tiny_job(**{"sharing": "block_6", "overrides": lively, "steps": 1, **spec})
        settings = {site: replace(load_site(site), allow_release=site in allowed) for site in SITES}
        run_job(job, tmp_path / "ws", settings)
        initial = ModelStore(read_job(job), tmp_path).initial
        return tmp_path / "ws", initial

    return run


@pytest.fixture
def unselective(monkeypatch):
    """The last aggregate is always the selected one, however it scores."""
    monkeypatch.setattr(ModelSelection, "mean", lambda self, scores: None)


def test_an_allowed_release_scores_the_others_with_that_sites_decoder(run, spied, unselective, caplog):
    with caplog.at_level(logging.INFO, "fedmed"):
        workspace, initial = run(allowed=("ct_north", "ct_south"), release_from="ct_north")
    result = result_of(workspace)
    assert {site: row.get("decoder_of") for site, row in result["test"].items()} == {
        "ct_north": None, "ct_south": None, "ct_east": "ct_north", "ct_west": "ct_north"
    }  # fmt: skip
    private = load_tensors(workspace / "ct_north/simulate_job/fedmed/state/round_0.pt")["private"]
    released = [(site, answer) for site, task, answer in spied if task.name == "release"]
    assert [site for site, _ in released] == ["ct_north"], "a site that was not asked released"
    evaluated = {site: task.tensors for site, task, _ in spied if task.name == "evaluate"}
    for site in ("ct_east", "ct_west"):
        assert evaluated[site].keys() == initial.keys()
        assert all(torch.equal(evaluated[site][name], private[name]) for name in private)
    assert all(not private.keys() & evaluated[site].keys() for site in ("ct_north", "ct_south"))
    entry = {"model": "selected", "from": "ct_north", "released": True, "for": ["ct_east", "ct_west"], "round": 0}
    size = n_bytes(private)
    assert result["releases"] == [{**entry, "n_tensors": len(private), "bytes_up": size, "bytes_down": 2 * size}]
    for words in (
        f"ct_north: releases its {len(private)} private tensors of round 0 ({size} bytes)",
        f"site 'ct_north' released its {len(private)} private tensors",
        "site 'ct_west' is scored with the decoder of site 'ct_north'",
        "over 3 cases, with ct_north's decoder",
    ):
        assert words in caplog.text
    saved = model_of(workspace)
    assert all(torch.equal(saved[name], initial[name]) for name in private), "a released layer was stored"
    rows = {row.name: row for row in site_rows(read_run(workspace))}
    assert rows["ct_east"].scored == "with ct_north's decoder" and rows["ct_south"].scored == ""
    html = page(read_run(workspace))
    assert "with ct_north&#39;s decoder" in html and "ct_north allowed its release" in html


def test_the_mean_of_all_sites_scores_the_others_and_is_kept_where_all_allow_it(
    tiny_job, lively, spied, unselective, tmp_path, tiny_site_configs
):
    spec = {"release_from": "all", "release_keep": True, "sharing": "block_6", "overrides": lively, "steps": 1}
    allowed = {"allow_release": True, "allow_kept_release": True}
    run_job(tiny_job(**spec), tmp_path / "ws", {site: replace(load_site(site), **allowed) for site in SITES})
    result = result_of(tmp_path / "ws")
    assert {site: row.get("decoder_of") for site, row in result["test"].items()} == {
        "ct_north": None, "ct_south": None, "ct_east": "all", "ct_west": "all"
    }  # fmt: skip
    released = {site: answer for site, task, answer in spied if task.name == "release"}
    assert set(released) == {"ct_north", "ct_south"} and all(answer.keep for answer in released.values())
    evaluated = {site: task.tensors for site, task, _ in spied if task.name == "evaluate"}
    (entry,) = result["releases"]
    shares = {site: update.n_samples for site, task, update in spied if task.name == "train" and site in released}
    total = sum(shares.values())
    assert entry["kept"] and entry["weights"] == {site: number / total for site, number in shares.items()}
    mean = load_tensors(server_file(tmp_path / "ws", "app_server/mean_of_private_layers_0.pt"))
    assert mean["meta"]["weights"] == entry["weights"]
    for name, tensor in mean["tensors"].items():
        parts = [entry["weights"][site] * answer.tensors[name].double() for site, answer in released.items()]
        assert torch.allclose(tensor, sum(parts).float()) and torch.equal(evaluated["ct_west"][name], tensor)
    rows = {row.name: row for row in site_rows(read_run(tmp_path / "ws"))}
    assert rows["ct_east"].scored == "with the mean of the sites' private layers"
    html = page(read_run(tmp_path / "ws"))
    assert "Released by ct_north 0." in html and "The mean is kept for an export." in html


def test_a_refused_release_leaves_the_others_without_dice_and_the_run_ends_well(
    run, unscored, spied, unselective, caplog
):
    workspace, _ = run(allowed=("ct_south",), release_from="ct_north")
    result = result_of(workspace)
    assert set(result["test"]) == {"ct_north", "ct_south"} and not result["releases"][0]["released"]
    assert "ct_north: the job asks for this site's private layers; nothing is released" in caplog.text
    assert "it does not allow it ('allow_release' in its own settings)" in result["releases"][0]["reason"]
    assert [answer.tensors for _, task, answer in spied if task.name == "release"] == [{}]
    assert "ct_north released none: it does not allow it" in page(read_run(workspace))
