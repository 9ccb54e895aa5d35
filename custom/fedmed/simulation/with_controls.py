"""A job or a study in NVFlare's simulator, with the controls that are asked for."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from fedmed.checks.simulated_job import job_sites, packaged
from fedmed.errors import JobError
from fedmed.methods.control_kinds import ADAPTED, FOLDERS, LEFT_OUT, SUFFIXES
from fedmed.recovery.workspace_owner import check_workspace, owned
from fedmed.simulation.one_run import RunOptions, report, simulate_one


def simulate(job: Path, workspace: Path, options: RunOptions) -> int:
    """Run a job or a study, and its controls if they are asked for, and report it; return the exit code.

    Raises:
        FedMedError: it cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="fedmed-simulate-") as scratch:
        folder = packaged(job, Path(scratch), **options.changes)
        return simulate_folder(folder, workspace, options, Path(scratch), job)


def simulate_folder(job: Path, workspace: Path, options: RunOptions, scratch: Path, given: Path) -> int:
    """As :func:`simulate`, of the folder of the job or study ``given``; what is made on the way goes to ``scratch``."""
    sites, threads = job_sites(job), options.threads
    check_workspace(workspace, job)
    if threads is not None and not 1 <= threads <= len(sites):
        raise JobError(f"--threads {threads} does not fit {job.name}: it has {len(sites)} sites, use 1 to {len(sites)}")
    if any(job.glob("app_*/config/study.yaml")):
        from fedmed.checks.control_check import check_study, held_back, withheld_scores
        from fedmed.checks.gain_check import gain_notes

        check_study(job, given)
        scores = "" if options.control else withheld_scores(job)  # with a control it is told below
        for note in filter(None, [held_back(job, given), scores, *gain_notes(job)]):
            if not options.quiet:
                print(f"note: {note}", file=sys.stderr)
    with owned(workspace) as lock:
        options = replace(options, lock=lock)
        if options.control:
            return simulate_all(job, workspace, options, scratch)
        return simulate_one(job, workspace, options, scratch) or report(workspace)


def simulate_all(job: Path, workspace: Path, options: RunOptions, scratch: Path) -> int:
    """Run a job and then its controls, which lie in the workspace; return the exit code.

    Raises:
        FedMedError: one of them cannot be started; before the first of them begins, wherever that can be known.
    """
    from fedmed.checks.control_check import is_done, is_made, is_only_scored, unmeasured, write_controls

    controls = write_controls(job, scratch, options.control or LEFT_OUT)
    if options.resume:
        for kind, folder in controls.items():
            check_workspace(workspace / FOLDERS[kind], folder)
    if missing := unmeasured(job):
        print(f"note: {missing}.", file=sys.stderr)
    many, scored = len(controls) > 1, ADAPTED in controls and is_only_scored(job)
    if many and not options.quiet:
        trainings = "two" if scored else "three"
        print(
            f"{job.name}: {trainings} trainings, since its sites adapt: the run, its control without "
            "the sites that have no labels, and one in which these adapt and learn nothing"
            f"{', which takes its models from that control' if scored else ''}"
        )
    then = "Its control follows, and takes about as long."
    if many:
        then = f"Its two controls follow, and {'the first' if scored else 'each'} takes about as long."
    done = options.resume and is_done(job, workspace)
    left = {
        kind: folder
        for kind, folder in controls.items()
        if not (done and is_made(workspace / FOLDERS[kind], kind, workspace))
    }
    if not left:
        raise JobError(f"the run in {workspace}, with what it is compared to, is finished; there is nothing to resume")
    if done:
        print(f"{job.name}: the run in {workspace} is done; {'its controls are' if many else 'its control is'} next")
    elif code := simulate_one(job, workspace, options, scratch, then=then) or report(workspace, page=False):
        return code
    return simulate_controls(job, workspace, options, left, scratch)


def simulate_controls(job: Path, workspace: Path, options: RunOptions, controls: dict[str, Path], scratch: Path) -> int:
    """Run controls of a finished run, and report it with all that are done; return the exit code.

    Args:
        job, workspace, options, scratch: as for :func:`simulate_one`, of the run.
        controls: kind -> job folder, of those that are not done yet.

    Raises:
        FedMedError: one of them cannot be started; or a folder holds another run.
    """
    for kind, folder in controls.items():
        place = workspace / FOLDERS[kind]
        resume, who = options.resume and unfinished(place), SUFFIXES[kind].strip()
        of_control = replace(options, resume=resume)
        if code := simulate_one(folder, place, of_control, scratch, who=f"{who}: "):
            report(workspace, table=False)
            words = f"only its {who} is missing: the same command with --resume makes it"
            print(f"the run of {job.name} itself is done; {words}", file=sys.stderr)
            return code
        if code := report(place, show=False):
            return code
    return report(workspace, table=False)


def unfinished(workspace: Path) -> bool:
    """True where a workspace holds a run that can go on.

    Raises:
        FedMedError: it holds a finished run.
    """
    from fedmed.recovery.interrupted_workspace import interrupted

    return interrupted(workspace) is not None
