"""What the machine has, and whether the site's settings use it."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import torch

import fedmed
from fedmed.checks.site_findings import SiteFinding
from fedmed.settings.site import SiteConfig

PACKAGES = ("nvflare", "monai", "torch", "numpy", "nibabel")


@dataclass(frozen=True)
class MachineFacts:
    """Facts about the machine; none of them names it.

    Attributes:
        device: what the site uses, ``cpu`` or ``cuda:0`` with the GPU's model name.
        gpus: (model, bytes of memory, bytes free) of each GPU.
        cores: CPU cores that this process may use; ``threads`` and ``workers`` are the site's settings.
        memory: bytes of main memory, and how much is available now.
        versions: (name, version) of what takes part.
    """

    device: str
    gpus: tuple[tuple[str, int, int], ...]
    cores: int
    threads: int
    workers: int
    memory: tuple[int, int]
    versions: tuple[tuple[str, str], ...]


def check_machine(site: SiteConfig) -> tuple[MachineFacts, list[SiteFinding]]:
    """Return the machine's facts, and where the site's settings do not fit them."""
    gpus = tuple(_gpu(index) for index in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    index = (torch.device(site.device).index or 0) if site.device.startswith("cuda") else None
    device = f"{site.device} ({gpus[index][0]})" if index is not None and index < len(gpus) else site.device
    memory = psutil.virtual_memory()
    amount = (memory.total, memory.available)
    machine = MachineFacts(device, gpus, cores, site.threads, site.workers, amount, tuple(_versions()))
    return machine, list(_findings(site, machine, index))


def _gpu(index: int) -> tuple[str, int, int]:
    free, total = torch.cuda.mem_get_info(index)
    return torch.cuda.get_device_name(index), total, free


def _findings(site: SiteConfig, machine: MachineFacts, index: int | None) -> Iterator[SiteFinding]:
    if index is not None and index >= len(machine.gpus):
        known = ", ".join(f"cuda:{place}" for place in range(len(machine.gpus))) or "none"
        text = f"{site.source}: key 'device' is '{site.device}', but the GPUs here are: {known}; correct it"
        yield SiteFinding("device", "device", text)
    if index is None and machine.gpus:
        text = f"{site.source}: key 'device' is '{site.device}', but there is a {machine.gpus[0][0]}; use auto or cuda"
        yield SiteFinding("device", "idle_gpu", text)
    if site.threads > machine.cores:
        text = f"{site.source}: key 'threads' is {site.threads}, but there are {machine.cores} cores; more only get in "
        yield SiteFinding("device", "threads", f"{text}each other's way: lower it")


def _versions() -> Iterator[tuple[str, str]]:
    """Versions of FedMed, Python, the operating system's kind and the packages that matter."""
    yield "fedmed", fedmed.__version__
    yield "python", platform.python_version()
    for name in PACKAGES:
        yield name, importlib.metadata.version(name)
    yield "system", f"{platform.system()} {platform.machine()}"
