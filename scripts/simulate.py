#!/usr/bin/env python3
"""Run a job or a study in NVIDIA FLARE's simulator and show its progress.

    python scripts/simulate.py jobs/covid_fssl
    python scripts/simulate.py jobs/covid_fssl --workspace runs/first --threads 2
    python scripts/simulate.py studies/tools_fedprox.yaml
    python scripts/simulate.py jobs/covid_fssl --resume
    python scripts/simulate.py jobs/cxr_linear --models runs/pretraining
    python scripts/simulate.py jobs/covid_fssl --control
    python scripts/simulate.py jobs/covid_agreement --silent-control

Before NVFlare starts, every site's settings, datalist and classes are checked, and the bundle; images are not opened.
NVFlare's own output goes to a file next to the workspace (WORKSPACE.log). The workspace of an earlier run is deleted;
one that is still at work keeps it. When this script ends, however it ends, all processes that it started end too.
With --resume an interrupted run continues after its last good round: its workspace is kept as WORKSPACE.before-1. A
damaged file of that round is named, and the run goes back to the round before.
With --control the same job runs once more, in WORKSPACE/control, with the sites that train without labels left out, and
the report begins with what they bring. Where the study has an adaptation, it runs a third time, in
WORKSPACE/control_adapted, where they adapt and learn nothing: so the report tells what adaptation and what learning
brings. With --silent-control they take part in WORKSPACE/control, and neither adapt nor learn anything. With --resume
too, what is not done yet of these runs is done.
Exit code: 0 done, 1 the job failed, 2 it could not be started, 130 stopped by Ctrl-C.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.live import Live

from fedmed.checks.simulated_job import check_workspace, for_simulator, job_sites, packaged
from fedmed.errors import FedMedError, JobError
from fedmed.files import RESUME_ROOT, SHARED_ROUNDS, absolute_places, private_files
from fedmed.interrupts import endings_as_ctrl_c
from fedmed.methods.control_kinds import ADAPTED, FOLDERS, LEFT_OUT, SILENT, SUFFIXES
from fedmed.plain_text import print_in_any_terminal
from fedmed.recovery.ends_with_parent import MARK, end_marked, marked
from fedmed.recovery.workspace_owner import owned
from fedmed.worker_processes import share_cores

if TYPE_CHECKING:  # elsewhere where they are used: they take seconds to load, for which --help need not wait
    from fedmed.reports.live import Follower

WORKER = "nvflare.private.fed.app.simulator.simulator_worker"  # the module that a site's process runs
POLL_INTERVAL = 2.0  # seconds between two looks at the sites' processes
MODELS = "FEDMED_MODELS"  # in which a process of NVFlare finds the folder of --models
KILL_GRACE = 8.0  # seconds between asking the simulator to stop and killing it


def models_folder(folder: Path) -> Path:
    """Folder of the models in a folder, which may be a run's workspace.

    Raises:
        JobError: there is no such folder.
    """
    if not folder.is_dir():
        raise JobError(f"--models {folder} is not a folder; give one of checkpoints, or a finished run's workspace")
    of_run = folder / "server" / "simulate_job" / "app_server"
    return of_run if of_run.is_dir() else folder


def nvflare() -> Path:
    """NVFlare's program, in the environment that runs this script."""
    program = Path(sys.executable).parent / "nvflare"
    if not program.is_file():
        raise FedMedError(f"NVFlare is missing: {program} does not exist; run scripts/setup.sh and use its .venv")
    return program


def command(program: Path, job: Path, workspace: Path, threads: int, gpu: str | None) -> list[str]:
    """The simulator's command line, under a process that ends it when this one is gone."""
    # NVFlare changes its directory: every path is absolute.
    line = [sys.executable, "-m", "fedmed.recovery.ends_with_parent"]
    line += [str(program), "simulator", str(job), "-w", str(workspace), "-t", str(threads)]
    return line + (["--gpu", gpu] if gpu else [])


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


def stop(process: subprocess.Popen, mark: str) -> None:
    """End the simulator and every process of its run, which bear its mark; kill those that do not end when asked."""
    family = marked(mark)
    for member in family:
        with suppress(psutil.Error):  # it has just ended
            member.terminate()
    psutil.wait_procs(family, timeout=KILL_GRACE)
    end_marked(mark)
    process.wait()


class Workers:
    """Notices a site whose process was killed: NVFlare's simulator would wait for it for ever.

    Args:
        process: the simulator, with a process for each site that lasts as long as the job.
        done: whether the run's result is written, after which the sites may end.
    """

    def __init__(self, process: subprocess.Popen, done: Callable[[], bool]) -> None:
        self.process, self.done = process, done
        self._seen, self._next, self._gone_since = set(), 0.0, None

    def lost(self) -> str | None:
        """Name a site that has been without its process for some time."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + POLL_INTERVAL
        alive = set()
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                line = child.cmdline() if child.status() != psutil.STATUS_ZOMBIE else []
                if WORKER in line and "-o" in line:
                    alive.add(Path(line[line.index("-o") + 1]).name)
        except psutil.Error:  # a process ended while it was looked at
            return None
        self._seen |= alive
        gone = sorted(self._seen - alive)
        self._gone_since = (self._gone_since or now) if gone else None
        late = gone and now - self._gone_since > KILL_GRACE
        return gone[0] if late and not self.done() else None


def follow(
    process: subprocess.Popen, follower: "Follower", console: Console, quiet: bool, workers: Workers | None = None
) -> str | None:
    """Show progress until the simulator ends: a live display in a terminal, plain lines elsewhere.

    Returns:
        A site whose process is gone, for which the simulator would wait for ever; None when it ended.
    """
    from fedmed.reports.live import render

    live = None if quiet or not console.is_terminal else Live(console=console, auto_refresh=False)
    with live or nullcontext():
        running = True
        while running:
            running = process.poll() is None
            lines = follower.poll()
            if live:
                live.update(render(follower.state, time.time()), refresh=True)
            elif not quiet:
                for line in lines:
                    print(line, flush=True)
            if running and workers and (site := workers.lost()):
                return site
            if running:
                time.sleep(0.25)
    return None


@dataclass(frozen=True)
class Options:
    """Options of a simulation: sites at work at a time (None: all), GPUs, what is printed, which runs and controls.

    Attributes:
        lock: descriptor of the workspace's lock, which the simulator holds too.
    """

    threads: int | None
    gpu: str | None
    quiet: bool
    resume: bool
    control: str | None
    lock: int | None = None


def simulate(job: Path, workspace: Path, options: Options) -> int:
    """Run a job or a study, and its controls if they are asked for, and report it; return the exit code.

    Raises:
        FedMedError: it cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="fedmed-simulate-") as scratch:
        return simulate_folder(packaged(job, Path(scratch)), workspace, options, Path(scratch))


def simulate_folder(job: Path, workspace: Path, options: Options, scratch: Path) -> int:
    """As :func:`simulate`, of a job folder; ``scratch`` is a folder for what is made on the way."""
    sites, threads = job_sites(job), options.threads
    check_workspace(workspace, job)
    if threads is not None and not 1 <= threads <= len(sites):
        raise JobError(f"--threads {threads} does not fit {job.name}: it has {len(sites)} sites, use 1 to {len(sites)}")
    if any(job.glob("app_*/config/study.yaml")):
        from fedmed.checks.control_check import check_study

        check_study(job)
    with owned(workspace) as lock:
        options = replace(options, lock=lock)
        if options.control:
            return simulate_all(job, workspace, options, scratch)
        return simulate_one(job, workspace, options, scratch) or report(workspace)


def simulate_all(job: Path, workspace: Path, options: Options, scratch: Path) -> int:
    """Run a job and then its controls, which lie in the workspace; return the exit code.

    Raises:
        FedMedError: one of them cannot be started; before the first of them begins, wherever that can be known.
    """
    from fedmed.checks.control_check import is_done, unmeasured, write_controls

    controls = write_controls(job, scratch, options.control or LEFT_OUT)
    if options.resume:
        for kind, folder in controls.items():
            check_workspace(workspace / FOLDERS[kind], folder)
    if missing := unmeasured(job):
        print(f"note: {missing}.", file=sys.stderr)
    if ADAPTED in controls and not options.quiet:
        print(
            f"{job.name}: three trainings, since its sites adapt: the run, its control without the sites that have no "
            "labels, and one in which these adapt and learn nothing"
        )
    many = len(controls) > 1
    then = (
        "Its two controls follow, and each takes about as long."
        if many
        else "Its control follows, and takes about as long."
    )
    if options.resume and is_done(job, workspace):
        print(f"{job.name}: the run in {workspace} is done; {'its controls are' if many else 'its control is'} next")
    elif code := simulate_one(job, workspace, options, scratch, then=then) or report(workspace, page=False):
        return code
    return simulate_controls(job, workspace, options, controls, scratch)


def simulate_controls(job: Path, workspace: Path, options: Options, controls: dict[str, Path], scratch: Path) -> int:
    """Run those controls of a finished run that are not done yet, and report it with them; return the exit code.

    Args:
        job, workspace, options, scratch: as for :func:`simulate_one`, of the run.
        controls: kind -> job folder.

    Raises:
        FedMedError: one of them cannot be started; or a folder holds another run, or nothing is left to do.
    """
    from fedmed.checks.control_check import is_made

    places = {kind: workspace / FOLDERS[kind] for kind in controls}
    left = [kind for kind in controls if not (options.resume and is_made(places[kind], kind, workspace))]
    if not left:
        raise JobError(f"the run in {workspace}, with what it is compared to, is finished; there is nothing to resume")
    for kind in left:
        resume, who = options.resume and unfinished(places[kind]), SUFFIXES[kind].strip()
        of_control = replace(options, resume=resume)
        if code := simulate_one(controls[kind], places[kind], of_control, scratch, who=f"{who}: "):
            report(workspace, table=False)
            words = f"only its {who} is missing: the same command with --resume makes it"
            print(f"the run of {job.name} itself is done; {words}", file=sys.stderr)
            return code
        if code := report(places[kind], show=False):
            return code
    return report(workspace, table=False)


def unfinished(workspace: Path) -> bool:
    """True where a workspace holds a run that can go on.

    Raises:
        FedMedError: it holds a finished run.
    """
    from fedmed.recovery.interrupted_workspace import interrupted

    return interrupted(workspace) is not None


def simulate_one(job: Path, workspace: Path, options: Options, scratch: Path, who: str = "", then: str = "") -> int:
    """Start or continue one run, and follow it to its end; return the exit code.

    Args:
        job, workspace, options: as for :func:`simulate`.
        scratch: folder for a job that continues a run.
        who: what stands before every line of its progress.
        then: a sentence on what follows it, for the live display.

    Raises:
        FedMedError: the job cannot be started.
    """
    from fedmed.reports.live import Follower, identity, last_error
    from fedmed.reports.run import JOB_FOLDER

    program, sites, quiet = nvflare(), job_sites(job), options.quiet  # an error comes before the workspace is renamed
    threads = min(options.threads or len(sites), len(sites))
    if options.resume:
        job = continue_run(job, workspace, scratch / "resumed")
    line = command(program, for_simulator(job, scratch), workspace, threads, options.gpu)
    log = workspace.with_name(f"{workspace.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    outcome = workspace / "server" / JOB_FOLDER / "result.json"
    before, follower = identity(outcome), Follower(workspace, job.name, sites, who, then)
    if not quiet:
        print(f"{who}{job.name}: {len(sites)} sites, {threads} threads; NVFlare's output: {log}", flush=True)
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
        killed = f"the process of site {lost} is gone: killed, or out of memory?"
        print(f"error: {job.name} failed: {killed if lost else last_error(log, follower.state)}", file=sys.stderr)
        print(f"the full output is in {log}\n{hint(workspace)}", end="", file=sys.stderr)
        return 1
    return 0


def report(workspace: Path, show: bool = True, table: bool = True, page: bool = True) -> int:
    """Write the report of a finished run; return the exit code.

    Args:
        workspace: of the run.
        show: whether anything is printed.
        table: whether the table of the sites' scores is, beside what joining has brought.
        page: whether it is written, which takes seconds; otherwise it comes later.
    """
    from fedmed.reports.control_run import read_with_controls
    from fedmed.reports.gain_words import on_screen
    from fedmed.reports.run_page import write_report
    from fedmed.reports.run_report import report_of

    print_in_any_terminal()
    try:
        run, console = read_with_controls(workspace), Console(quiet=not show)
        console.print(*([report_of(run).table(run)] if table else []), *on_screen(run))
        written = write_report(workspace).html if page else None
    except FedMedError as error:
        print(f"error: the job is done, but cannot be reported: {error}", file=sys.stderr)
        return 1
    if show and written:
        print(f"report: {written}")
    return 0


def hint(workspace: Path) -> str:
    """One line on how to continue, if that is possible."""
    from fedmed.recovery.checkpoint import Checkpoints
    from fedmed.recovery.interrupted_workspace import records

    kept = Checkpoints(records(workspace)).rounds
    return "the same command with --resume continues after the last good round\n" if kept else ""


@endings_as_ctrl_c()
@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, and turn errors into words and an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", metavar="JOB", type=Path, help="job folder, such as jobs/covid_fssl, or a study's file")
    parser.add_argument("--workspace", metavar="WS", type=Path, default=Path("simulator_workspace"), help="run folder")
    parser.add_argument(
        "--models",
        metavar="DIR",
        type=Path,
        help="where the checkpoint lies that the job starts from: a "
        "folder, or the workspace of a finished run (default: $FEDMED_HOME/models)",
    )
    parser.add_argument("--threads", metavar="N", type=int, help="sites at work at a time (default: all)")
    parser.add_argument("--gpu", metavar="IDS", help='GPUs, as NVFlare takes them: "0,1" or "[0,1],[2]"')
    parser.add_argument("--resume", action="store_true", help="continue the interrupted run in the workspace")
    control = parser.add_mutually_exclusive_group()
    control.add_argument(
        "--control",
        action="store_const",
        const=LEFT_OUT,
        help="also run the job without its sites that have no labels, and say what these bring; where sites adapt, "
        "once more with them adapting and learning nothing",
    )
    control.add_argument(
        "--silent-control",
        dest="control",
        action="store_const",
        const=SILENT,
        help="also run the job so that its sites without labels neither adapt nor learn, and say what these bring",
    )
    parser.add_argument("--quiet", action="store_true", help="only the result, or the error")
    given = parser.parse_args(arguments)
    share_cores()  # all sites' processes are on this machine
    try:
        if given.models:
            os.environ[MODELS] = str(models_folder(given.models.expanduser().resolve()))
        job, workspace = given.job.expanduser().resolve(), given.workspace.expanduser().resolve()
        return simulate(job, workspace, Options(given.threads, given.gpu, given.quiet, given.resume, given.control))
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
