"""Measure a site's work in a job, in a process of its own: ``python -m fedmed.checks.measuring_process FOLDER``.

A process of its own, because the peak of a process's memory is that of all it ever did. It is the same code that runs
in a federation: a client, a ``train`` task, the site's device and threads. ``FOLDER/request.json`` says what to do;
``FOLDER/result.json`` is what came out.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigParser

from fedmed.bundles.bundle_parser import initial_network, named_tensors, parsed
from fedmed.checks.part_in_job import requested_job
from fedmed.errors import FedMedError, first_line
from fedmed.federation.client import Client
from fedmed.federation.opened_model import site_attributes
from fedmed.files import prepared_sizes, write_atomically
from fedmed.messages.answers import extras_bytes
from fedmed.messages.task import Task
from fedmed.settings.site import SiteConfig, load_file

WARM_UP = 1  # steps that are not counted: the first one allocates, and cuDNN looks for its fastest kernels
DATASETS = {"supervised": ("train", "validate"), "unsupervised": ("train", "labeled"), "evaluate": ("evaluate",)}


def main(folder: Path) -> None:
    """Do what the request says and write the result; an error of the site's data or bundle is a result too."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    die_first()
    try:
        result = measure(request, folder)
    except Exception as error:  # noqa: BLE001 - a lack of memory comes in many wrappings
        if reason := lack_of_memory(error):
            result = {"out_of_memory": reason}
        elif isinstance(error, FedMedError):
            result = {"error": str(error)}
        else:
            raise
    write_atomically(folder / "result.json", lambda stream: stream.write(json.dumps(result).encode()))


def lack_of_memory(error: BaseException | None) -> str:
    """Return the message of a lack of memory, however it is wrapped; ``""`` for any other error."""
    looked_at: set[int] = set()  # an error may be the context of its own cause
    while error is not None and id(error) not in looked_at:
        looked_at.add(id(error))
        text = str(error)
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "not enough memory" in text:
            return first_line(error) if text else "out of memory"
        error = error.__cause__ or error.__context__
    return ""


def measure(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return seconds and bytes of a site's work, attributes of :class:`fedmed.checks.measurement.Measured`.

    Args:
        request: ``site``, ``source`` (its YAML), ``datalist`` (some of its cases), ``cache_dir``, the job and
            ``role``, ``steps`` to measure, ``score`` (whether to score the validation cases), ``scored`` (how many
            cases that scores), ``metadata`` (whether to compute what the job exchanges), ``max_batch_size``.
        folder: where the client may write.
    """
    site, role = _site(request), request["role"]
    job = requested_job(request, site.allowed_classes)
    torch.set_num_threads(site.threads)
    client = Client(job, site, folder / "job", role)
    facts = {"dataset_dir": str(site.data_root), "datalist": str(site.datalist), "cache_dir": str(site.cache_dir)}
    parser = client.bundle.parser(device=site.device, **facts, **site_attributes(site))
    measured: dict[str, Any] = _prepare(parser, role, site)
    tensors = named_tensors(initial_network(parser, client.seed))
    has_minimum = "metadata_min_images" in parser
    del parser
    measured["model_bytes"] = sum(tensor.nbytes for tensor in tensors.values())
    task = Task("train", 0, 1, tensors, WARM_UP + request["steps"], client.bundle.digest)
    if role == "evaluate":
        measured["score_seconds"] = (
            _seconds(lambda: client.evaluate(replace(task, name="evaluate"))) / request["scored"]
        )
    else:
        if request["score"]:
            seconds = _seconds(lambda: client.validate(replace(task, name="validate")))
            measured["score_seconds"] = seconds / request["scored"]
        if request["metadata"]:
            measured |= _metadata(client, has_minimum, site, folder, task)
        measured |= _train(client, task, folder)
    return measured | _memory(site)


def _site(request: Mapping[str, Any]) -> SiteConfig:
    site, datalist = load_file(request["source"], request["site"]), Path(request["datalist"])
    batch = request["max_batch_size"] or site.max_batch_size
    return replace(site, max_batch_size=batch, datalist=datalist, cache_dir=Path(request["cache_dir"]))


def _prepare(parser: ConfigParser, role: str, site: SiteConfig) -> dict[str, float]:
    """Prepare the cases into an empty cache, each timed."""
    seconds: list[float] = []
    frames: dict[str, float] = {}
    for part in DATASETS[role]:
        if f"{part}#videos" in parser:  # all are prepared when they are opened
            started = time.monotonic()
            videos = parsed(parser, f"{part}#videos").videos
            seconds += [(time.monotonic() - started) / len(videos)] * len(videos)
            frames |= {"frames": len(parsed(parser, "train#data"))} if part == "train" else {}
        elif part in parser:
            dataset = parsed(parser, f"{part}#dataset")
            seconds += [_seconds(partial(dataset.prepared, index)) for index in range(len(dataset))]
    times = frames | ({"prepare_seconds": statistics.fmean(seconds)} if seconds else {})
    sizes = prepared_sizes(site.cache_dir) if seconds else []
    return times | ({"cache_bytes": statistics.fmean(sizes)} if sizes else {})


def _metadata(client: Client, has_minimum: bool, site: SiteConfig, folder: Path, task: Task) -> dict[str, Any]:
    """Seconds for an image and bytes of what others get of the site; the cases at hand are enough for that."""
    job, role = client.job, client.role
    few = {**job.overrides(role), **({"metadata_min_images": 2} if has_minimum else {})}
    job = replace(job, study=job.study.model_copy(update={"overrides": {role: few}}))
    site = replace(site, privacy=site.privacy.model_copy(update={"extras_min_images": 2}))
    client = Client(job, site, folder / "metadata", role)
    started = time.monotonic()
    values = client.metadata(replace(task, name="metadata")).values
    seconds = time.monotonic() - started
    if "n" not in values:  # nothing is sent, or once
        return {}
    return {"metadata_seconds": seconds / values["n"], "extras_bytes": extras_bytes(values)}


def _train(client: Client, task: Task, folder: Path) -> dict[str, Any]:
    times: list[tuple[int, float]] = []

    def note(name: str, value: float, step: int) -> None:
        if name == "train/loss":  # not of every step, when there are many
            times.append((step, time.monotonic()))

    client.train(replace(task, steps=WARM_UP))
    client.progress.stream = note
    # A second round, which continues from the state of the first, as most rounds do.
    update = client.train(replace(task, round=1, private_round=0))
    steps = [(end - start) / (last - first) for (first, start), (last, end) in pairwise(times)]
    state = max((path.stat().st_size for path in (folder / "job").rglob("round_*.pt")), default=0)
    return {
        "step_seconds": statistics.median(steps) if steps else None,
        "state_bytes": state,
        "sent_bytes": sum(tensor.nbytes for tensor in update.tensors.values()),
    }


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _memory(site: SiteConfig) -> dict[str, int]:
    """Peak bytes of this process and its loading workers, and of the GPU."""
    # VmHWM and not ru_maxrss: the latter starts from the size of the process that started this one.
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii", errors="replace").splitlines() if status.is_file() else []
    peak = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)
    if peak is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    workers = site.workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 if site.workers else 0
    peaks = {"peak_bytes": peak + workers}
    if site.device.startswith("cuda"):
        peaks["cuda_peak_bytes"] = torch.cuda.max_memory_reserved(site.device)
    return peaks


def die_first() -> None:
    """Ask the system to kill this process and no other if the machine runs out of memory."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:  # not Linux, or not allowed
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
