"""The control beside a run: the same job whose sites without labels are left out, or learn nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmed.errors import FedMedError, JobError
from fedmed.methods.control_kinds import SILENT, kind_of_control
from fedmed.reports.gain import gains
from fedmed.reports.run import read_run
from fedmed.reports.run_contents import Run

CONTROL = "control"  # its folder in the workspace of the run
DIFFERS = {  # what is another in a control, or only says how long a run took to get to its end
    "controller": {"job", "sites", "min_clients", "resume", "fresh", "max_failed_rounds", "task_timeout"},
    "aggregator": {"user_weights"},
    "model": set[str](),
}


def read_with_control(folder: str | Path, control: str | Path | None = None) -> Run:
    """Read a run and its control, if it has one.

    Args:
        folder: of the run.
        control: folder of the control; by default ``control`` in that of the run. There, one that is damaged or
            unfinished does not keep the run from being reported: ``control_problem`` says what is wrong.

    Raises:
        JobError, FedMedError: as :func:`fedmed.reports.run.read_run`; or the folder that was named does not hold a
            finished control of the run.
    """
    run = read_run(folder)
    place = Path(control) if control else run.folder / CONTROL
    if control is None and not (place / "server").is_dir():  # a site may have that name
        return run
    try:
        found = read_run(place)
        check_control(run, found)
        run.gains, run.control = gains(run, found), kind_of_control(found.job)
        if not run.gains:
            raise JobError(f"neither {run.folder} nor the control in {place} was scored at any site")
    except FedMedError as error:
        if control is not None:
            raise
        run.control_problem = str(error)
    return run


def check_control(run: Run, control: Run) -> None:
    """Refuse what is not the control of a run.

    Raises:
        JobError: it did not reach its end, sites learn without labels in it or not in the run, or it is of another job.
    """
    where, silent = f"the control in {control.folder}", kind_of_control(control.job) == SILENT
    learning = [] if silent else [site.name for site in control.by_role("unsupervised")]
    if not run.by_role("unsupervised"):
        raise JobError(f"{where} has nothing to tell: in {run.folder} no site trains without labels")
    if learning:
        raise JobError(f"{where} is none: {learning[0]} trains without labels in it too; give a run without such sites")
    if [site.name for site in run.by_role("supervised")] != [site.name for site in control.by_role("supervised")]:
        raise JobError(f"{where} is of another job than {run.folder}: other sites train with labels in it")
    if found := differences(run.config, control.config):
        raise JobError(f"{where} is of another job than {run.folder}: {'; '.join(found)}")
    if control.result is None:
        option = "--silent-control" if silent else "--control"
        raise JobError(
            f"{where} did not reach its end: {len(control.rounds)} of {control.total_rounds} rounds are done; "
            f"scripts/simulate.py JOB {option} --resume goes on with it"
        )


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """What should be equal in a run and its control but is not: ``rounds is 14 and 8``.

    Args:
        ours, theirs: plain arguments of controller, aggregator and model, as in ``run.json``; of the model, what both
            say is compared.
    """
    found = []
    for part, may in DIFFERS.items():
        first, second = (json.loads(json.dumps(config.get(part) or {})) for config in (ours, theirs))
        keys = set(first) & set(second) if part == "model" else set(first) | set(second)
        for key in sorted(keys - may):
            if first.get(key) != second.get(key):
                found.append(f"'{key}' is {first.get(key)!r} and {second.get(key)!r}")
    return found
