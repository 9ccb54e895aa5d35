#!/usr/bin/env python3
"""Cost of models that sites train alone (`gain: true`), and of the pages that compare them.

    python benchmarks/gain.py --steps 5 --rounds 3

Runs a federation on synthetic scans in one process and on one thread. Its rounds with and without models trained alone
are compared in turns: steps, and seconds of a site's task to train, with the scoring of its validation list; the first
round, in which the caches fill, is left out. Then five hospitals with 20 test scans each are tested, and the seconds
are measured that their pages and the study's report take once all scores are there. Seconds are of the processor, for
other work on the machine does not count in these; the clock's stand beside them.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import nibabel as nib
import numpy as np
import torch
import yaml
from ignite.engine import Engine, Events

from fedmed.federation import opened_model
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.messages.answers import Answer
from fedmed.messages.task import Task
from fedmed.reports import hospital_gain
from fedmed.reports.run_page import write_report
from fedmed.settings.site import SiteConfig, load_file

SPACING = (3.0, 3.0, 6.0)  # mm, that of the bundle's overlay: no scan is resampled
SLICES = 16
METHOD = "fedmed.methods.supervised_fedavg.SupervisedFedAvg"


class Seconds(NamedTuple):
    """Seconds of the processor and of the clock."""

    cpu: float
    clock: float


class Cost(NamedTuple):
    """Steps of a round at a site, the median, and seconds of its task to train."""

    steps: float
    seconds: Seconds


@contextmanager
def timed(into: list[Seconds]) -> Iterator[None]:
    """Add the seconds of a block to a list."""
    cpu, clock = time.process_time(), time.perf_counter()
    yield
    into.append(Seconds(time.process_time() - cpu, time.perf_counter() - clock))


def middle(seconds: Sequence[Seconds]) -> Seconds:
    """The medians."""
    return Seconds(*map(statistics.median, zip(*seconds, strict=True)))


def hospital(folder: Path, seed: int, side: int, counts: dict[str, int]) -> SiteConfig:
    """A site with scans of side × side × 16 voxels, in each of which a light ellipsoid is marked."""
    draw = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*map(np.arange, (side, side, SLICES)), indexing="ij"), axis=-1)
    lists = dict[str, list[dict[str, str]]]()
    folder.mkdir(parents=True)
    for part, count in counts.items():
        for number in range(count):
            centre, radius = draw.uniform(0.3, 0.7, 3) * grid.shape[:3], draw.uniform(0.1, 0.25) * side
            mask = (((grid - centre) * (1, 1, 2)) ** 2).sum(axis=-1) < radius**2
            image = draw.normal(-850, 60, mask.shape) + 250 * mask
            entry = {}
            for kind, values in (("image", image.astype(np.int16)), ("label", mask.astype(np.uint8))):
                entry[kind] = f"{part}_{number}_{kind}.nii.gz"
                nib.save(nib.Nifti1Image(values, np.diag([*SPACING, 1])), folder / entry[kind])
            lists.setdefault(part, []).append({**entry, "patient": f"{part} {number}"})
    (folder / "datalist.json").write_text(json.dumps(lists))
    path = folder.with_suffix(".yaml")
    path.write_text(yaml.safe_dump({"data_root": str(folder), "device": "cpu", "threads": 1}))
    return load_file(path)


def federation(
    sites: dict[str, SiteConfig], folder: Path, side: int, answer: Callable[[Client, Task], Answer], **study: Any
) -> Path:
    """Run a federation of labelled sites, whose scans are scored as a whole; return its workspace."""
    values = {"name": "gain", "bundle": "covid_ct_segmentation", "overlays": ["demo"], "method": {"path": METHOD}}
    values["overrides"] = {"supervised": {"window_size": [side, side, SLICES]}}
    job = Job.of({**values, "sites": dict.fromkeys(sites, "supervised"), **study})
    run_job(write_job(job, folder / "job"), folder / "run", sites, answer=answer)
    return folder / "run"


def cost_of_round(sites: dict[str, SiteConfig], folder: Path, gain: bool, options: argparse.Namespace) -> Cost:
    """Steps and seconds of a site's round, the median of sites and rounds but the first."""
    made, seconds = defaultdict[int, int](int), list[Seconds]()
    known = {"round": 0}

    class Counted:
        """Counts the steps of an engine."""

        def attach(self, engine: Engine) -> None:
            engine.add_event_handler(Events.ITERATION_COMPLETED, self.note)

        def note(self) -> None:
            made[known["round"]] += 1

    run = opened_model.run_trainer

    def counted(trainer: Any, steps: int, aborted: Any, report: Any, handlers: Sequence[Any]) -> dict[str, float]:
        return run(trainer, steps, aborted, report, [*handlers, Counted()])

    def answer(client: Client, task: Task) -> Answer:
        if task.name != "train" or task.round == 0:
            return client.answer(task)
        known["round"] = task.round
        with timed(seconds):
            return client.answer(task)

    with mock.patch.object(opened_model, "run_trainer", counted):
        federation(sites, folder, options.side, answer, rounds=options.rounds, steps=options.steps, gain=gain)
    return Cost(statistics.median(made[round] for round in range(1, options.rounds)) / len(sites), middle(seconds))


def compare_rounds(folder: Path, options: argparse.Namespace) -> None:
    """Print steps and seconds with and without models trained alone."""
    counts = {"training": 4, "validation": 1, "testing": 1}
    sites = {name: hospital(folder / "sites" / name, seed, options.side, counts) for seed, name in enumerate("ab")}
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    for turn in range(options.turns):
        for gain in costs:
            place = folder / f"{turn}{gain}"
            costs[gain].append(cost_of_round(sites, place, gain, options))
    steps = {gain: statistics.median(cost.steps for cost in each) for gain, each in costs.items()}
    seconds = {gain: middle([cost.seconds for cost in each]) for gain, each in costs.items()}
    print("| of a site's round | without | with a model trained alone | ratio | at most |\n|---|--:|--:|--:|--:|")
    print(f"| steps | {steps[False]:.0f} | {steps[True]:.0f} | {steps[True] / steps[False]:.2f} | 2.00 |")
    for n, name in enumerate(("processor", "clock")):
        without, with_it = seconds[False][n], seconds[True][n]
        print(f"| seconds, {name} | {without:.2f} | {with_it:.2f} | {with_it / without:.2f} | 2.00 |", flush=True)


def measure_pages(folder: Path, options: argparse.Namespace) -> None:
    """Print the seconds that the pages of all hospitals and the report of the study take."""
    counts = {"training": 1, "validation": 1, "testing": options.cases}
    names = [f"hospital_{n}" for n in range(1, options.sites + 1)]
    sites = {name: hospital(folder / "sites" / name, seed, options.side, counts) for seed, name in enumerate(names)}
    pages, report, numbers = list[Seconds](), list[Seconds](), hospital_gain.hospital_gain

    def measured(*given: Any, **named: Any) -> dict[str, float]:
        with timed(pages):
            return numbers(*given, **named)

    with mock.patch.object(hospital_gain, "hospital_gain", measured):
        run = federation(sites, folder, options.side, Client.answer, rounds=2, steps=2, gain=True)
    with timed(report):
        write_report(run)
    total = Seconds(*(sum(values) for values in zip(*pages, *report, strict=True)))
    what = f"{options.sites} hospitals, {options.cases} test scans each, pictures of {options.side} × {options.side}"
    print(f"\n| {what} | processor, s | clock, s | at most |\n|---|--:|--:|--:|")
    for name, each in (("a hospital's page, the median", middle(pages)), ("the study's report", report[0])):
        print(f"| {name} | {each.cpu:.2f} | {each.clock:.2f} | |")
    print(f"| all pages | {total.cpu:.2f} | {total.clock:.2f} | 10 |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=96, help="voxels of a slice's side")
    parser.add_argument("--steps", type=int, default=5, help="of a round that is timed")
    parser.add_argument("--rounds", type=int, default=3, help="the first is not counted")
    parser.add_argument("--turns", type=int, default=2, help="federations of each kind")
    parser.add_argument("--sites", type=int, default=5, help="whose pages are timed")
    parser.add_argument("--cases", type=int, default=20, help="test scans of each of these")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["FEDMED_HOME"] = f"{temporary}/home"
        compare_rounds(Path(temporary) / "rounds", options)
        measure_pages(Path(temporary) / "pages", options)


if __name__ == "__main__":
    main()
