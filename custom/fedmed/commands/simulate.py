"""``fedmed simulate``."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmed.commands.options import ended, stop_says
from fedmed.errors import FedMedError, JobError
from fedmed.files import MODELS, private_files

if TYPE_CHECKING:
    from fedmed.simulation.one_run import RunOptions


@private_files()
def simulate(
    job: Annotated[
        Path,
        typer.Argument(metavar="JOB", help="Job folder, a study's file, or the name of one of FedMed's: covid_fssl."),
    ],
    workspace: Annotated[Path, typer.Option(metavar="WS", help="Run folder.")] = Path("simulator_workspace"),
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the checkpoint lies that the job starts from: a folder, or the workspace of a finished run. "
            "Default: $FEDMED_HOME/models.",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Sites at work at a time. Default: all.")] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="IDS", help='GPUs, as NVFlare takes them: "0,1" or "[0,1],[2]".')
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in the workspace.")] = False,
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Also run the job without its sites that have no labels, and say what these bring; where sites adapt, "
            "once more with them adapting and learning nothing.",
        ),
    ] = False,
    silent_control: Annotated[
        bool,
        typer.Option(
            "--silent-control",
            help="Also run the job so that its sites without labels neither adapt nor learn, and say what these bring.",
        ),
    ] = False,
    gain: Annotated[
        bool,
        typer.Option(
            "--gain",
            help="Let each site with labels also train a model alone, and say what it gains from the others.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the result, or the error.")] = False,
) -> None:
    """Run a job or a study in NVIDIA FLARE's simulator and show its progress.

      fedmed simulate jobs/covid_fssl
      fedmed simulate jobs/covid_fssl --workspace runs/first --threads 2
      fedmed simulate studies/tools_fedprox.yaml
      fedmed simulate jobs/covid_fssl --resume
      fedmed simulate jobs/cxr_linear --models runs/pretraining
      fedmed simulate jobs/covid_fssl --gain --control
      fedmed simulate jobs/covid_agreement --silent-control

    Before NVFlare starts, every site's settings, datalist and classes are checked, and the bundle; images are not
    opened. NVFlare's own output goes to a file next to the workspace (WORKSPACE.log). A finished run in the workspace
    makes room: one is kept, as WORKSPACE.previous. An unfinished one is deleted; one that is still at work keeps its
    place. When this command ends, however it ends, all processes that it started end too. With --resume an interrupted
    run continues after its last good round: its workspace is kept as WORKSPACE.before-1. A damaged file of that round
    is named, and the run goes back to the round before.

    With --gain, or 'gain: true' in the study, each site with labels trains a model of its own in the same tasks, with
    as many steps; the report begins with what each gains, and gain.html in the site's folder says it to the hospital.

    With --control the same job runs once more, in WORKSPACE/control, with the sites that train without labels left out,
    and the report begins with what they bring. Where the study has an adaptation, it runs a third time, in
    WORKSPACE/control_adapted, where they adapt and learn nothing: so the report tells what adaptation and what learning
    brings. With --silent-control they take part in WORKSPACE/control, and neither adapt nor learn anything. With
    --resume too, what is not done yet of these runs is done.

    Exit code: 0 done, 1 the job failed, 2 it could not be started, 130 stopped by Ctrl-C.
    """
    if control and silent_control:
        raise FedMedError("--control and --silent-control exclude each other")
    from fedmed.methods.control_kinds import LEFT_OUT, SILENT
    from fedmed.simulation.one_run import RunOptions

    if models:
        os.environ[MODELS] = str(_models_folder(models.expanduser().resolve()))
    kind = LEFT_OUT if control else SILENT if silent_control else None
    run(job, workspace, RunOptions(threads, gpu, quiet, resume, kind, {"gain": True} if gain else {}))


def run(job: Path, workspace: Path, options: "RunOptions") -> None:
    """Run a simulation as a command does, and end with its exit code."""
    from fedmed.jobs.named_job import named_job
    from fedmed.simulation.with_controls import simulate
    from fedmed.worker_processes import share_cores

    share_cores()  # all sites' processes are on this machine
    if not options.quiet:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("fedmed.demo").setLevel(logging.INFO)  # a minute without a word looks like a fault
    with stop_says("stopped while no simulator was at work; what is finished stays"):
        code = simulate(named_job(job).resolve(), workspace.expanduser().resolve(), options)
    ended(code)


def _models_folder(folder: Path) -> Path:
    """Folder of the models in a folder, which may be a run's workspace.

    Raises:
        JobError: there is no such folder.
    """
    if not folder.is_dir():
        raise JobError(f"--models {folder} is not a folder; give one of checkpoints, or a finished run's workspace")
    of_run = folder / "server" / "simulate_job" / "app_server"
    return of_run if of_run.is_dir() else folder
