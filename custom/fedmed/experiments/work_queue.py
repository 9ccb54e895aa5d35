"""All chains of some tables, in other processes, with a display of the time left."""

import logging
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedmed.experiments.chain import ChainWork, do, merged
from fedmed.experiments.parallel import Failure, in_processes
from fedmed.reports.words import duration


@dataclass(frozen=True)
class PlannedWork:
    """Work of one arm of a table.

    Attributes:
        arm: its name.
        work: one chain of one seed.
    """

    arm: str
    work: ChainWork


def run_works(
    parts: Iterable[PlannedWork], jobs: int | None = None, dask: str | None = None, console: Console | None = None
) -> dict[Path, str]:
    """Run what is missing, ``jobs`` at a time; one that fails does not stop the others.

    Args:
        parts: of all tables; equal ones are done once.
        jobs: processes; None = what the machine allows.
        dask: address of a Dask scheduler that runs them instead.
        console: where progress is shown; a terminal gets a bar, anything else a line a run.

    Returns:
        Paths of the works that failed -> why.
    """
    parts = list(parts)
    works = merged(part.work for part in parts)
    todo = [work for work in works if work.missing()]  # looks at every image: once
    console = console or Console(highlight=False)
    shared, before = len(parts) - len(works), len(works) - len(todo)
    console.print(f"{len(parts)} runs, {shared} of them shared, {before} finished before", soft_wrap=True)
    failed: dict[Path, str] = {}
    columns, started = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False)), time.time()
    with (
        closing(in_processes(todo, jobs or jobs_for(todo), quietly, dask)) as results,
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("first runs", total=len(todo))
        for done, (work, result) in enumerate(results, start=1):
            if isinstance(result, Failure):
                failed[work.path] = f"{work.name}: {result.reason}"
            left = duration((time.time() - started) / done * (len(todo) - done))
            text = f"{work.name}: {'failed' if work.path in failed else 'done'}; about {left} left"
            bar.update(task, advance=1, description=text)
            if not console.is_terminal:
                console.print(f"[{done}/{len(todo)}] {text}", markup=False, soft_wrap=True)
    return failed


def quietly(work: ChainWork) -> None:
    """Work on a chain; what a run has to say is in its own file."""
    logging.getLogger("fedmed").setLevel(logging.ERROR)
    do(work)


def jobs_for(works: Sequence[ChainWork]) -> int:
    """Works that this machine can do at a time: its cores by the threads of one; one where sites use a GPU."""
    sites = [site for work in works for step in work.steps for site in step.sites]
    if any(site.device != "cpu" for site in sites):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none
    return max(1, cores // max((site.threads for site in sites), default=1))
