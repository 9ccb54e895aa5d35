"""Start the measurement of a site's work on a few of its cases, and say what came out."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fedmed.checks.entries import MEASURED, Cases, Entry, voxels
from fedmed.checks.machine import nearest_folder
from fedmed.checks.part_in_job import PartInJob
from fedmed.checks.site_findings import SiteFinding
from fedmed.data.datalist import HELD_OUT
from fedmed.settings.site import SiteConfig

PREFIX = ".fedmed-check-"
SCORES = {"supervised": "validation", "evaluate": "testing"}  # what a role's score is of
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
FULL = 0.85  # share of the machine's memory from which a peak is worth a note
SAMPLE = 3  # cases of a list that are prepared
COMPARED = 16  # the same, where a kind of training has no labels and compares cases with each other


@dataclass(frozen=True)
class Measured:
    """Cost of a site's work; None where it was not measured.

    Attributes:
        batch: cases in a batch here; ``job_batch`` is the job's own.
        step_seconds: median of the measured optimizer steps.
        prepare_seconds: mean time to prepare a case that is not in the cache yet.
        score_seconds: time to score one case with the received model.
        metadata_seconds: time for one image of the statistics that a job exchanges; ``extras_bytes``: what is sent.
        peak_bytes, cuda_peak_bytes: most memory at a time, of the machine and of the GPU.
        model_bytes, sent_bytes, state_bytes: all tensors; those that leave the site in a round; what it keeps of one.
        cache_bytes: mean size of a prepared case.
        frames: that training takes from the videos which were measured, one epoch; None for images.
    """

    batch: int | None = None
    job_batch: int | None = None
    step_seconds: float | None = None
    prepare_seconds: float | None = None
    score_seconds: float | None = None
    metadata_seconds: float | None = None
    peak_bytes: int | None = None
    cuda_peak_bytes: int | None = None
    model_bytes: int | None = None
    sent_bytes: int | None = None
    state_bytes: int | None = None
    cache_bytes: float | None = None
    extras_bytes: int | None = None
    frames: int | None = None


@dataclass
class Attempt:
    """One start of the measuring process: its result, and how it ended."""

    result: dict[str, Any] = field(default_factory=dict)
    code: int | None = 0  # None: stopped because it took too long
    log: str = ""

    @property
    def out_of_memory(self) -> bool:
        return "out_of_memory" in self.result or self.code in KILLED


def measure(
    site: SiteConfig,
    work: PartInJob,
    sample: Sequence[Entry],
    job_batch: int | None,
    steps: int = 3,
    score: bool = True,
    timeout: float = 1800,
) -> tuple[Measured, list[SiteFinding]]:
    """Measure ``work`` on ``sample``. When the batch does not fit into memory, smaller ones are tried.

    The site's cache is left alone: what is prepared lies in a private folder beside it, which is removed.
    """
    wanted = batch = min(job_batch, site.max_batch_size) if job_batch and site.max_batch_size else job_batch
    request = {
        "site": site.site,
        "source": str(site.source),
        **work.request(),
        "steps": steps,
        "score": score and work.role == "supervised" and any(entry.list == "validation" for entry in sample),
        "scored": max(1, sum(entry.list == SCORES.get(work.role) for entry in sample)),
        "metadata": bool(work.exchanged),
    }
    attempt = _attempt(site, sample, request, timeout, batch)
    while attempt.out_of_memory and batch and batch > 1:
        batch //= 2
        attempt = _attempt(site, sample, request, timeout, batch)
    if attempt.out_of_memory:
        return Measured(batch, job_batch), [_does_not_fit(site, wanted, None)]
    findings = [_does_not_fit(site, wanted, batch)] if batch != wanted else []
    if attempt.code != 0 or not attempt.result or "error" in attempt.result:
        return Measured(batch, job_batch), [*findings, _failure(attempt, timeout)]
    measured = Measured(batch, job_batch, **attempt.result)
    return measured, findings or list(_remarks(site, measured))


def _attempt(
    site: SiteConfig, sample: Sequence[Entry], request: dict[str, Any], timeout: float, batch: int | None
) -> Attempt:
    place = _place(site)
    remove_left_over(place)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=place) as name:
        folder = Path(name)
        datalist = write_datalist(folder, site, sample)
        request |= {"datalist": str(datalist), "cache_dir": str(folder / "cache"), "max_batch_size": batch}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        line = [sys.executable, "-m", "fedmed.checks.measuring_process", str(folder)]
        log = folder / "log.txt"
        code: int | None = None
        with log.open("wb") as stream, contextlib.suppress(subprocess.TimeoutExpired):
            code = subprocess.run(line, stdout=stream, stderr=subprocess.STDOUT, timeout=timeout).returncode
        last = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1].strip()
        result = folder / "result.json"
        return Attempt(json.loads(result.read_bytes()) if result.is_file() else {}, code, last)


def remove_left_over(place: Path | None) -> None:
    """A check that was killed could not remove its prepared cases, which are patient data."""
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _place(site: SiteConfig) -> Path | None:
    """The cache's own disk, whose speed counts; where it cannot be written, that of temporary files."""
    folder = nearest_folder(site.cache_dir)
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def _does_not_fit(site: SiteConfig, batch: int | None, fits: int | None) -> SiteFinding:
    memory = f"{psutil.virtual_memory().available / 1e9:.1f} GB of main memory are free now"
    what = f"{f'a batch of {batch}' if batch else 'the work'} does not fit into the memory of {site.device} ({memory})"
    if fits:
        remedy = f"a batch of {fits} does: write 'max_batch_size: {fits}' into {site.source}"
    else:
        remedy = "nor does a batch of 1; use another machine, or ask the study lead for smaller patches or windows"
    return SiteFinding("training", "out_of_memory", f"{what}; {remedy}")


def _failure(attempt: Attempt, timeout: float) -> SiteFinding:
    if attempt.code is None:
        text = f"stopped after {timeout / 60:.0f} minutes; raise --timeout, or measure on a faster machine"
        return SiteFinding("training", "too_long", text)
    if "error" in attempt.result:
        return SiteFinding("training", "cannot_train", attempt.result["error"])
    text = f"the measuring process ended with code {attempt.code}: {attempt.log or 'it wrote nothing'}"
    return SiteFinding("training", "cannot_train", f"{text}; send this line to the study lead if it names no patient")


def _remarks(site: SiteConfig, measured: Measured) -> Iterator[SiteFinding]:
    if measured.batch and measured.job_batch and measured.batch < measured.job_batch:
        text = f"the job's batch of {measured.job_batch} becomes {measured.batch} by max_batch_size in {site.source}"
        yield SiteFinding("training", "batch", f"{text}; fine, if that was meant")
    total = psutil.virtual_memory().total
    if measured.peak_bytes and measured.peak_bytes > FULL * total:
        text = f"{measured.peak_bytes / 1e9:.1f} of {total / 1e9:.1f} GB of memory were used; keep other programs off "
        yield SiteFinding("training", "memory", f"{text}this machine, or lower max_batch_size")


def choose_sample(entries: Sequence[Entry], cases: Cases, role: str, labelled: bool = True) -> list[Entry]:
    """Return some usable entries of each list that ``role`` works with in a round.

    They are the largest, which need most memory; one of them has foreground, or one of them each class. Empty when the
    role's first list has none; without labels in training, when no list has any.
    """
    chosen: list[Entry] = []
    for key in MEASURED[role]:
        usable = [entry for entry in entries if entry.list == key and (entry not in cases or cases[entry].usable)]
        usable.sort(key=lambda entry: (-voxels(entry, cases), entry.number))
        if any(entry.label for entry in usable):
            needed = list({entry.label: entry for entry in reversed(usable)}.values())
        else:
            needed = [entry for entry in usable if entry not in cases or cases[entry].mask_ml][:1]
        most = 1 if key in HELD_OUT else SAMPLE if labelled else COMPARED
        chosen += list(dict.fromkeys([*needed, *usable]))[: max(len(needed), most)]
    lists = MEASURED[role][:1] if labelled else MEASURED[role]
    return chosen if any(entry.list in lists for entry in chosen) else []


def write_datalist(folder: Path, site: SiteConfig, sample: Sequence[Entry]) -> Path:
    """Write a datalist of the sample alone, for the measuring process."""
    lists: dict[str, list[dict[str, str]]] = {}
    for entry in sample:
        files = {entry.main: entry.image, "labels": entry.table}
        files["label" if entry.main == "image" else "masks"] = entry.mask
        relative = {name: path.relative_to(site.data_root).as_posix() for name, path in files.items() if path}
        lists.setdefault(entry.list, []).append(relative | ({"label": entry.label} if entry.label else {}))
    path = folder / "datalist.json"
    path.write_text(json.dumps(lists), encoding="utf-8")
    return path
