"""Measurements in each role, in this process; scripts/test_check_site.py does it in one of its own."""

from types import SimpleNamespace

import pytest

import fedmed.checks.measuring_process as module
from fedmed.checks.entries import read_entries
from fedmed.checks.measurement import choose_sample, write_datalist
from fedmed.checks.measuring_process import measure
from fedmed.checks.part_in_job import find_work
from fedmed.checks.site_check import find_site
from fedmed.data.cache import CaseCacheDataset
from fedmed.data.datalist import MaskEntry
from fedmed.messages.task import Task


@pytest.mark.parametrize("name", ["ct_north", "ct_east", "ct_west"])
def test_each_role_does_its_own_work(tiny_job, tmp_path, name):
    site = find_site(name, None)
    work = find_work(str(tiny_job()), name)
    sample = choose_sample(read_entries(site, MaskEntry())[0], {}, work.role)
    request = {"site": name, "source": str(site.source), "cache_dir": str(tmp_path / "cache"), **work.request()}
    request |= {"datalist": str(write_datalist(tmp_path, site, sample)), "steps": 1, "max_batch_size": None}
    request |= {"scored": 1, "metadata": False}
    measured = measure({**request, "score": work.role == "supervised"}, tmp_path)
    assert measured["peak_bytes"] > 1e8
    assert len(list((tmp_path / "cache").rglob("*.pt"))) == len(sample)
    assert measured["prepare_seconds"] > 0 and measured["cache_bytes"] > 0
    assert ("score_seconds" in measured) == (work.role != "unsupervised")
    if work.role == "evaluate":
        assert "step_seconds" not in measured
    else:
        assert measured["step_seconds"] > 0 and 0 < measured["sent_bytes"] <= measured["model_bytes"]
        assert measured["state_bytes"] > 1.5 * measured["model_bytes"]  # Adam's two moments


def test_nothing_is_prepared_twice(tiny_job, tmp_path, monkeypatch):
    prepared = []
    plain = CaseCacheDataset._prepare
    monkeypatch.setattr(
        CaseCacheDataset, "_prepare", lambda self, case: prepared.append(case["image"]) or plain(self, case)
    )
    test_each_role_does_its_own_work(tiny_job, tmp_path, "ct_north")
    assert len(prepared) == len(set(prepared)) == 4


def test_a_step_is_timed_though_not_every_one_is_reported(tmp_path, monkeypatch):
    """Of 100 steps only every fifth is reported; one takes 2 s."""
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))

    class Site:
        progress = SimpleNamespace(stream=lambda *scalar: None)

        def train(self, task):
            for step in range(5, task.steps + 1, 5):
                self.progress.stream("train/loss", 0.0, task.round * task.steps + step)
            return SimpleNamespace(tensors={})

    assert module._train(Site(), Task("train", 0, 1, {}, 100), tmp_path)["step_seconds"] == 2.0
