#!/usr/bin/env python3
"""Files of FedMed that a task of training enters, at a site and at the server: how far a reader has to follow it.

    python benchmarks/task_trace.py                       # a site without labels of jobs/covid_fssl
    python benchmarks/task_trace.py phases_fedcy --role supervised

Runs one tiny round in one process. Counted are the files in which a function runs: of the site from the task to the
update; of the server from the updates to the next model, and with the choice of a model, the record and the checkpoint;
and how often the site opens its datalist.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import model_digests as digests

from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.jobs.job_folder import write_job
from fedmed.messages.answers import Answer
from fedmed.messages.task import Task

PACKAGES = (str(digests.CHECKOUT / "custom"), str(digests.CHECKOUT / "bundles"))
AT_IMPORT = "light_imports.py"  # Python asks it at each import
TO_THE_MODEL = ("accept", "_refuse_unusual", "_aggregate")


@contextmanager
def traced(calls: Counter[str]) -> Iterator[None]:
    """Count calls by file of FedMed and of the bundles, those at import left out."""

    def note(frame: Any, event: str, arg: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and frame.f_code.co_name != "<module>" and path.startswith(PACKAGES):
            calls[str(Path(path).relative_to(digests.CHECKOUT))] += not path.endswith(AT_IMPORT)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def trace(name: str, role: str, folder: Path) -> tuple[Counter[str], Counter[str], Counter[str], int]:
    """Files entered in the last round at a site of this role, at the server up to the model, and by all that it does at
    the end of a round; openings of the site's datalist.
    """
    job = digests.tiny_job(name, folder).changed({"evaluate": False})
    kind = digests.SIZES[job.study.bundle][0]
    sites = {site: digests.site(site, kind, job, folder) for site in job.study.sites}
    traced_site = next(site for site, site_role in job.study.sites.items() if site_role == role)
    at_site, to_model, at_server, opened = (Counter[str]() for _ in range(4))
    watching = False

    def note_opening(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and str(args[0]).endswith(sites[traced_site].datalist.name):
            opened[str(args[0])] += 1

    def answer(client: Client, task: Task) -> Answer:
        nonlocal watching
        if client.site.site != traced_site or task.name != "train" or task.round + 1 != task.total_rounds:
            return client.answer(task)
        watching = True
        with traced(at_site):
            answer = client.answer(task)
        watching = False
        return answer

    sys.addaudithook(note_opening)
    calls = {name: getattr(Server, name) for name in (*TO_THE_MODEL, "finish_round")}

    def traced_call(name: str) -> Any:
        def run(self: Server, *args: Any) -> Any:
            with traced(to_model if name in TO_THE_MODEL else at_server):
                return calls[name](self, *args)

        return run

    for name in calls:
        setattr(Server, name, traced_call(name))
    try:
        run_job(write_job(job, folder / "job"), folder / "run", sites, answer=answer)
    finally:
        for name, call in calls.items():
            setattr(Server, name, call)
    return +at_site, +to_model, +(to_model + at_server), sum(opened.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?", default="covid_fssl", help="a job of jobs/ or a study of studies/")
    parser.add_argument("--role", default="unsupervised", help="of the site that is watched")
    parser.add_argument("--files", action="store_true", help="name the files, with the number of calls")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        at_site, to_model, at_server, openings = trace(arguments.job, arguments.role, Path(folder))
    print(
        f"{arguments.job}, {arguments.role}: the site enters {len(at_site)} files, opens its datalist {openings} times"
    )
    print(f"the server enters {len(to_model)} files from the updates to the next model, {len(at_server)} in the round")
    if arguments.files:
        for counts in (at_site, to_model, at_server):
            print()
            for path, calls in sorted(counts.items()):
                print(f"{calls:8}  {path}")


if __name__ == "__main__":
    main()
