"""All encoders of some tables, each in a process of its own, with a display of the time left."""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedmed.experiments.pretraining.arms import Arm, Table
from fedmed.experiments.pretraining.cases import Hospital
from fedmed.experiments.pretraining.description import Description
from fedmed.experiments.pretraining.downstream import Evaluation
from fedmed.experiments.pretraining.plan import Pretraining, pretrainings
from fedmed.experiments.pretraining.tasks import evaluations
from fedmed.experiments.pretraining.work import Work, do, folder_of
from fedmed.experiments.processes import Failure, in_processes
from fedmed.reports.words import duration


@dataclass(frozen=True)
class Part:
    """One encoder of an arm and seed, and the evaluations that a table wants of it.

    Attributes:
        arm: which row.
        pretraining: its encoder.
        evaluations: classifiers on it.
        folder: of their predictions; equal encoders of two tables share it.
    """

    arm: Arm
    pretraining: Pretraining
    evaluations: tuple[Evaluation, ...]
    folder: Path


def parts_of(
    table: Table, description: Description, hospitals: dict[str, Hospital], seeds: Sequence[int], runs: Path
) -> list[Part]:
    """Every encoder of a table.

    Raises:
        FedMedError: an arm cannot be run on this data.
    """
    return [
        Part(
            arm,
            made,
            tuple(evaluations(arm, table, description, hospitals, seed, runs)),
            folder_of(made, runs, description.name),
        )
        for seed in seeds
        for arm in table.arms
        for made in pretrainings(arm, description, hospitals, seed, runs)
    ]


def run_parts(parts: Sequence[Part], jobs: int | None, console: Console | None = None) -> dict[Path, str]:
    """Run what is missing, ``jobs`` at a time; a part that fails does not stop the others.

    Args:
        parts: of all tables; equal encoders are made once.
        jobs: processes; None = cores by threads of a run, one where a GPU is used.
        console: where progress is shown, a line an encoder.

    Returns:
        Folders of the parts that failed -> why.
    """
    works = [work for work in merged(parts)]
    todo = [work for work in works if work.missing()]
    console = console or Console(highlight=False)
    classifiers = sum(len(work.evaluations) for work in works)
    console.print(
        f"{len(works)} encoders with {classifiers} classifiers, {len(works) - len(todo)} encoders finished before",
        soft_wrap=True,
    )
    failed, started = {}, time.monotonic()
    with closing(in_processes(todo, jobs or jobs_for(todo), do)) as results:
        for done, (work, result) in enumerate(results, start=1):
            if isinstance(result, Failure):
                failed[work.folder] = f"{work.name}: {result.reason}"
            left = (time.monotonic() - started) / done * (len(todo) - done)
            word = "failed" if work.folder in failed else "done"
            text = f"[{done}/{len(todo)}] {work.name}: {word}; about {duration(left)} left"
            console.print(text, markup=False, soft_wrap=True)
    return failed


def merged(parts: Iterable[Part]) -> list[Work]:
    """One piece of work an encoder, with what any table wants of it, in the order of the parts."""
    found: dict[Path, Work] = {}
    for part in parts:
        before = found.get(part.folder)
        wanted = {each.file(part.folder): each for each in (*(before.evaluations if before else ()), *part.evaluations)}
        node = f" at {part.pretraining.node}" if part.pretraining.node else ""
        name = before.name if before else f"{part.arm.name}{node}, seed {part.pretraining.seed}"
        found[part.folder] = Work(name, part.pretraining, tuple(wanted.values()), part.folder)
    return list(found.values())


def jobs_for(works: Sequence[Work]) -> int:
    """Encoders that this machine can work on at a time."""
    sites = [each.site for work in works for each in work.evaluations]
    if any(site.device != "cpu" for site in sites):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none
    return max(1, cores // max((site.threads for site in sites), default=1))
