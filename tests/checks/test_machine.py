"""Facts about the machine, and settings that do not use it."""

from dataclasses import replace

import pytest
import torch

from fedmed.checks.facts import sections
from fedmed.checks.machine import check_machine


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (30 * 10**9, 40 * 10**9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "ACME 40")


def test_a_cpu_site_is_described(small_site):
    machine, problems = check_machine(small_site.config())
    assert problems == [] and machine.device == "cpu" and machine.cores >= 1 and machine.memory[0] > machine.memory[1]
    assert dict(machine.versions).keys() >= {"fedmed", "nvflare", "monai", "torch", "python"}


@pytest.mark.parametrize(
    ("device", "kinds", "shown"),
    [("cuda", [], "cuda (ACME 40)"), ("cuda:1", [], "cuda:1 (ACME 40)"), ("cpu", ["idle_gpu"], "cpu")],
)
def test_the_gpu_that_is_used_is_named(small_site, two_gpus, device, kinds, shown):
    machine, problems = check_machine(replace(small_site.config(), device=device))
    assert [finding.kind for finding in problems] == kinds and machine.device == shown


def test_a_gpu_that_is_not_there_is_a_problem(small_site, two_gpus):
    _, (finding,) = check_machine(replace(small_site.config(), device="cuda:2"))
    assert (finding.kind, finding.level) == ("device", "problem") and "cuda:0, cuda:1" in finding.text


def test_more_threads_than_cores_is_noted(small_site):
    _, (finding,) = check_machine(small_site.config(threads=4096))
    assert finding.kind == "threads" and "4096" in finding.text


def test_a_gpu_shows_its_memory(small_site, two_gpus):
    from fedmed.checks.site_check import CheckedSite

    config = small_site.config()
    machine, _ = check_machine(config)
    rows = dict(dict(sections(CheckedSite(config, machine=machine)))["Machine"])
    assert rows["GPUs"] == "; ".join(["ACME 40, 40.0 GB, 30.0 GB free"] * 2)
