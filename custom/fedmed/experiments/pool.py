"""Many runs at a time, each in a process of its own, with a display of the time left."""

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedmed.errors import FedMedError, JobError
from fedmed.experiments.processes import Failure, in_processes
from fedmed.experiments.results import read_result
from fedmed.experiments.runs import Run, finished, run
from fedmed.experiments.scores import Score


@dataclass
class Outcome:
    """What became of the runs, by their folders.

    Attributes:
        scores: of the finished ones.
        failed: errors of the others.
    """

    scores: dict[Path, list[Score]] = field(default_factory=dict)
    failed: dict[Path, FedMedError] = field(default_factory=dict)

    def scores_of(self, run: Run) -> list[Score]:
        """Scores of a run, under the name that its table gives the arm."""
        return [replace(score, arm=run.arm) for score in self.scores[run.folder]]


def jobs_for(runs: Sequence[Run]) -> int:
    """Runs that this machine can do at a time: its cores by the threads of a run; one where sites use a GPU."""
    sites = [site for each in runs for site in each.sites.values()]
    if any(site.device != "cpu" for site in sites):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none
    return max(1, cores // max((site.threads for site in sites), default=1))


def run_all(runs: Sequence[Run], jobs: int | None = None, console: Console | None = None) -> Outcome:
    """Run what is not finished, ``jobs`` at a time; an arm that fails does not stop the others.

    Args:
        runs: of one or several tables; equal ones (same folder) are done once.
        jobs: processes; None = what the machine allows.
        console: where progress is shown; a terminal gets a bar, anything else a line a run.
    """
    unique = {run.folder: run for run in runs}
    done = {folder: each for folder, each in unique.items() if finished(each)}  # looks at every image: once
    todo = [each for folder, each in unique.items() if folder not in done]
    console = console or Console(highlight=False)
    console.print(f"{len(runs)} runs, {len(runs) - len(unique)} of them shared, {len(done)} finished before")
    outcome = Outcome({folder: read_result(folder, each.arm, each.seed) for folder, each in done.items()})
    if todo:
        _work(todo, jobs or jobs_for(todo), console, outcome)
    return outcome


def _work(todo: Sequence[Run], jobs: int, console: Console, outcome: Outcome) -> None:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    started = time.monotonic()
    with (
        closing(in_processes(todo, jobs, run)) as results,
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("first runs", total=len(todo))
        for done, (each, result) in enumerate(results, start=1):
            failed = isinstance(result, Failure)
            if failed:
                outcome.failed[each.folder] = JobError(f"{each.arm}, seed {each.seed}: {result.reason}")
            else:
                outcome.scores[each.folder] = result
            left = (time.monotonic() - started) / done * (len(todo) - done)
            text = f"{each.arm}, seed {each.seed}: {'failed' if failed else 'done'}; about {_minutes(left)} left"
            bar.update(task, advance=1, description=text)
            if not console.is_terminal:
                console.print(f"[{done}/{len(todo)}] {text}", markup=False, soft_wrap=True)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
