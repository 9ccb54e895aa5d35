#!/usr/bin/env python3
"""Test scores of a job's model by round, at every site, as a CSV.

    python benchmarks/learning_curve.py curve.csv studies/phases_fullsup.yaml --every 5 --seeds 0 1
    python benchmarks/learning_curve.py curve.csv jobs/phases_fedcy --set rounds=100 --workspace runs/curve

Runs the job in one process and on one thread. Every so many rounds each site scores the model that it has just
received, as it would score the result: on its testing list, with its own private layers and statistics. Sites that are
only scored, and those that the warm start leaves out, get the model of a labelled one. Rows are added to the CSV: job,
seed, rounds (selected: the model that validation chose), site, the score, and seconds of the processor for training
until then. Nothing chooses by these scores.
"""

import argparse
import csv
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.jobs.study_settings import with_settings
from fedmed.messages.answers import Answer
from fedmed.messages.task import SELECTED, Task
from fedmed.settings.site import load_site

COLUMNS = ("job", "seed", "rounds", "site", "score", "cpu_seconds")


class Curve:
    """Answers tasks as the sites would, and has them score the models that they receive.

    Args:
        job: what is run.
        folder: for the files of the sites that are only scored.
        every: rounds between two scores.
    """

    def __init__(self, job: Job, folder: Path, every: int) -> None:
        self.job, self.folder, self.every, self.rows = job, folder, every, list[dict[str, Any]]()
        self.trained, self.seed = 0.0, job.study.seed
        idle = [site for site, role in job.study.sites.items() if role == "evaluate"]
        self.idle = {site: self.scored(site) for site in idle}
        self.first = min(job.study.of_role("supervised"))

    def answer(self, client: Client, task: Task) -> Answer:
        """Answer of the site; a score of what it received is taken first."""
        if task.name != "train":
            if task.name == "evaluate" and task.model == SELECTED:
                self.keep("selected", client, task)
            return client.answer(task)
        if task.round % self.every == 0:
            self.score(client, task)
        started = time.process_time()
        answer = client.answer(task)
        self.trained += time.process_time() - started
        return answer

    def score(self, client: Client, task: Task) -> None:
        """Of the site's, and of those that are only scored."""
        clients = {client.site.site: client}
        if client.site.site == self.first:
            waiting = self.job.study.of_role("unsupervised") if task.round < self.job.study.warm_start.rounds else []
            clients |= self.idle | {site: self.scored(site) for site in waiting}
        for one in clients.values():
            test = replace(task, name="evaluate", validate=False, epochs=None, steps=0)
            test = replace(test, private_round=None) if one is not client else test
            self.keep(str(task.round), one, test)

    def keep(self, rounds: str, client: Client, task: Task) -> None:
        score = client.evaluate(replace(task, model=SELECTED))[client.bundle.score.test]
        row = {"job": self.job.study.name, "seed": self.seed, "rounds": rounds, "site": client.site.site}
        self.rows.append({**row, "score": f"{score:.4f}", "cpu_seconds": f"{self.trained:.0f}"})
        print(*self.rows[-1].values(), flush=True)

    def scored(self, site: str) -> Client:
        """A site that has not trained."""
        return Client(self.job, load_site(site), self.folder / site)


def curve(job: Job, workspace: Path, every: int) -> Iterator[dict[str, Any]]:
    """Rows of one run."""
    curve = Curve(job, workspace / "scored", every)
    folder = write_job(job, workspace / f"job_{job.study.seed}", replace=True)
    run_job(folder, workspace / f"run_{job.study.seed}", answer=curve.answer)
    yield from curve.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="CSV to which rows are added")
    parser.add_argument("job", type=Path, help="job folder")
    parser.add_argument("--every", type=int, default=5, help="rounds between two scores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the study, as of fedmed study package")
    parser.add_argument("--workspace", type=Path, help="keep the runs here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    new = not arguments.out.exists()
    with tempfile.TemporaryDirectory() as temporary, arguments.out.open("a", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        if new:
            rows.writeheader()
        for seed in arguments.seeds:
            said = [*arguments.set, f"seed={seed}"]
            text = with_settings(read_job(arguments.job).text, said, str(arguments.job))
            rows.writerows(curve(Job.parse(text), arguments.workspace or Path(temporary), arguments.every))
            file.flush()


if __name__ == "__main__":
    main()
