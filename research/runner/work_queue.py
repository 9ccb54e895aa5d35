"""All chains of some tables, in other processes, with a display of the time left."""

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import joblib
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedmed.reports.words import duration
from fedmed.worker_processes import share_cores
from research.runner.parallel import Failure, in_processes
from research.runner.stages import ArmWork, merged


def run_works(planned: Sequence[ArmWork], jobs: int | None = None, dask: str | None = None) -> dict[Path, str]:
    """Run what is missing, ``jobs`` at a time; one that fails does not stop the others.

    A terminal gets a bar, anything else a line a run.

    Args:
        planned: of all tables; equal ones are done once.
        jobs: processes; None = what the machine allows.
        dask: address of a Dask scheduler that runs them instead.

    Returns:
        Paths of the works that failed -> why.
    """
    share_cores()
    works = merged(planned)
    missing = {work.path: [step for step in work.steps if step.missing()] for work in works}  # every image: once
    todo = [work for work in works if missing[work.path]]
    console = Console(highlight=False)
    shared, before = len(planned) - len(works), len(works) - len(todo)
    console.print(f"{len(planned)} runs, {shared} of them shared, {before} finished before", soft_wrap=True)
    for other in filter(None, (step.made_by_other_code() for work in todo for step in missing[work.path])):
        text = f"{other.name}: made by other code of FedMed or of the bundle; it is kept, and made again"
        console.print(text, markup=False, soft_wrap=True)
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


def quietly(work: ArmWork) -> None:
    """Work on a chain; what a run has to say is in its own file."""
    logging.getLogger("fedmed").setLevel(logging.ERROR)
    work.do()


def jobs_for(works: Sequence[ArmWork]) -> int:
    """Works that this machine can do at a time: its cores by the threads of one; one where sites use a GPU."""
    sites = [site for work in works for step in work.steps for site in step.machines()]
    if any(site.device != "cpu" for site in sites):
        return 1
    return max(1, joblib.cpu_count() // max((site.threads for site in sites), default=1))
