"""``fedmed demo``."""

from pathlib import Path
from typing import Annotated

import typer

from fedmed.commands.options import demand_hospitals
from fedmed.commands.simulate import run
from fedmed.files import private_files

ROUNDS, STEPS = 10, 20  # of the job's 12 of 30, for time


@private_files()
def demo(
    workspace: Annotated[Path, typer.Option(metavar="WS", help="Run folder.")] = Path("runs/covid_agreement"),
    threads: Annotated[int | None, typer.Option(metavar="N", help="Sites at work at a time. Default: all.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted demo in the workspace.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the result, or the error.")] = False,
) -> None:
    """Train the demo federation, and show what each hospital gains: about 9 minutes on 2 slow cores.

    Four synthetic hospitals of chest CTs are made on first use, of which one has no labels. The job covid_agreement
    runs in NVFlare's simulator, where hospitals with labels also train alone, then without that hospital, and with it
    adapting and learning nothing; at the end stands what each gains, alone and together, and the path of the HTML
    report. The run replaces that of an earlier demo.
    """
    demand_hospitals()
    from fedmed.methods.control_kinds import LEFT_OUT
    from fedmed.simulation.one_run import RunOptions

    changes = {"gain": True, "rounds": ROUNDS, "steps": STEPS}
    run(Path("covid_agreement"), workspace, RunOptions(threads, None, quiet, resume, LEFT_OUT, changes))
