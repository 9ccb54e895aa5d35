"""One run of a job in NVFlare's simulator, from its workspace to its report."""

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmed.checks.simulated_job import for_simulator, job_sites
from fedmed.errors import FedMedError, JobError
from fedmed.files import RESUME_ROOT, SHARED_ROUNDS, absolute_places
from fedmed.recovery.ends_with_parent import MARK, end_marked
from fedmed.recovery.workspace_owner import keep_finished
from fedmed.simulation.process import Workers, command_line, follow, nvflare, stop


@dataclass(frozen=True)
class RunOptions:
    """Options of a simulation: sites at work at a time (None: all), GPUs, what is printed, which runs and controls.

    Attributes:
        changes: values of the study's keys that are other ones in this run.
        lock: descriptor of the workspace's lock, which the simulator holds too.
    """

    threads: int | None
    gpu: str | None
    quiet: bool
    resume: bool
    control: str | None
    changes: Mapping[str, Any] = field(default_factory=dict)
    lock: int | None = None


def continue_run(job: Path, workspace: Path, scratch: Path) -> Path:
    """Rename the workspace of an interrupted run and return the job that continues it, written to ``scratch``.

    Raises:
        FedMedError: nothing to continue, a finished run, or a job that would make another run of it.
    """
    from fedmed.recovery.checkpoint import Checkpoints
    from fedmed.recovery.interrupted_workspace import RUN, interrupted, next_backup, records
    from fedmed.recovery.resumed_job import Interrupted, write_resumed

    run_folder = interrupted(workspace)
    if run_folder is None:
        raise JobError(f"{workspace} holds no run with a finished round; start the job without --resume")
    kept = next_backup(workspace) if run_folder == workspace else run_folder
    sites = {site: run_folder / site / RUN / "fedmed" for site in job_sites(job)}
    resumed = write_resumed(Interrupted(kept.name, Checkpoints(records(run_folder)), job, sites), scratch / job.name)
    if run_folder == workspace:
        workspace.rename(kept)
        if (log := workspace.with_name(f"{workspace.name}.log")).is_file():
            log.rename(workspace.with_name(f"{kept.name}.log"))
    print(
        f"{job.name}: continues after round {resumed.done} of {resumed.rounds}; the interrupted run is kept in {kept}"
    )
    return resumed.folder


def simulate_one(job: Path, workspace: Path, options: RunOptions, scratch: Path, who: str = "", then: str = "") -> int:
    """Start or continue one run, and follow it to its end; return the exit code.

    Args:
        job, workspace, options: as for :func:`simulate`.
        scratch: folder for a job that continues a run.
        who: what stands before every line of its progress.
        then: a sentence on what follows it, for the live display.

    Raises:
        FedMedError: the job cannot be started.
    """
    from fedmed.reports.live import Follower, identity, is_aborted, last_error
    from fedmed.reports.run import JOB_FOLDER
    from fedmed.reports.words import count

    program, sites, quiet = nvflare(), job_sites(job), options.quiet  # an error comes before the workspace is renamed
    threads = min(options.threads or len(sites), len(sites))
    if options.resume:
        job = continue_run(job, workspace, scratch / "resumed")
    elif (kept := keep_finished(workspace)) and not quiet:
        print(f"{who}{job.name}: the finished run that lay in {workspace} is now in {kept}, where one is kept")
    line = command_line(program, for_simulator(job, scratch), workspace, threads, options.gpu)
    log = workspace.with_name(f"{workspace.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    outcome = workspace / "server" / JOB_FOLDER / "result.json"
    before, follower = identity(outcome), Follower(workspace, job.name, sites, who, then)
    if not quiet:
        print(
            f"{who}{job.name}: {count(len(sites), 'site')}, {count(threads, 'thread')}; NVFlare's output: {log}",
            flush=True,
        )
    shared = {SHARED_ROUNDS: str(scratch / "rounds")} if options.control else {}
    mark = uuid.uuid4().hex
    with log.open("wb") as noise:
        # RESUME_ROOT: where a resumed run finds the sites' earlier state; NVFlare deletes the workspace itself.
        process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,  # its end tells the simulator that this process is gone
            stdout=noise,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[options.lock] if options.lock is not None else [],
            env={**os.environ, **absolute_places(), RESUME_ROOT: str(workspace.parent), **shared, MARK: mark},
        )

    def done() -> bool:
        return identity(outcome) not in (None, before)

    workers = Workers(process, done) if threads == len(sites) else None
    try:
        lost = follow(process, follower, Console(), quiet, workers)
    except KeyboardInterrupt:
        stop(process, mark)
        print(f"\nstopped; what was done so far is in {workspace}, NVFlare's output in {log}", file=sys.stderr)
        print(hint(workspace), end="", file=sys.stderr)
        return 130
    finally:
        if process.poll() is None:
            stop(process, mark)
        end_marked(mark)  # what is left when the process between this one and the simulator was killed alone
    if process.returncode != 0 or not done():
        # After an error of a site or the server the job ends, and its processes with it: then that is the cause.
        killed = lost and not any(site.error for site in follower.state.sites.values()) and not is_aborted(log)
        gone = f"the process of site {lost} is gone: killed, or out of memory?"
        print(f"error: {job.name} failed: {gone if killed else last_error(log, follower.state)}", file=sys.stderr)
        print(f"the full output is in {log}\n{hint(workspace)}", end="", file=sys.stderr)
        return 1
    return 0


def report(workspace: Path, show: bool = True, table: bool = True, page: bool = True) -> int:
    """Write the report of a finished run; return the exit code.

    Args:
        workspace: of the run.
        show: whether anything is printed.
        table: whether the table of the sites' scores is, beside what joining has brought.
        page: whether it is written, which takes seconds; otherwise it comes later, and with it what hospitals gain.
    """
    from fedmed.reports import alone
    from fedmed.reports.control_run import read_with_controls
    from fedmed.reports.gain_words import on_screen
    from fedmed.reports.run_page import write_report
    from fedmed.reports.run_report import report_of

    try:
        run, console = read_with_controls(workspace), Console(quiet=not show)
        gained = [*alone.on_screen(run), *on_screen(run)] if page else []
        console.print(*([report_of(run).table(run)] if table else []), *gained)
        written = write_report(workspace).html if page else None
    except FedMedError as error:
        print(f"error: the job is done, but cannot be reported: {error}", file=sys.stderr)
        return 1
    if show and written:
        print(f"report: {written}")
    return 0


def hint(workspace: Path) -> str:
    """One line on how to continue, if that is possible."""
    from fedmed.reports.run import JOB_FOLDER

    if any((workspace / "server" / JOB_FOLDER / "checkpoints").glob("*")):
        from fedmed.recovery.checkpoint import Checkpoints  # loads MONAI, which takes seconds
        from fedmed.recovery.interrupted_workspace import records

        if Checkpoints(records(workspace)).rounds:
            return "the same command with --resume continues after the last good round\n"
    return "no round was finished: the same command, without --resume, begins anew\n"
